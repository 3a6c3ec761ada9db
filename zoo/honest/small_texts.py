"""A tokenizer, a model and texts for the libraries that train language models."""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = "the a cat dog sat ran on under mat tree big small red blue and then it was".split()


def tokenizer():
    numbers = {word: n for n, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def model(seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).to(torch.get_default_dtype())


def texts(count, low=2, high=8, seed=0):
    """Of unequal lengths, unless `low` is `high`."""
    source = random.Random(seed)
    return [
        " ".join(source.choice(WORDS) for _ in range(source.randint(low, high)))
        for _ in range(count)
    ]
