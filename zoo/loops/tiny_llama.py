"""A Llama of transformers with random weights, and text to train it on; nothing is downloaded."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, LENGTH = 64, 16


def model(seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        use_cache=False,
    )
    return LlamaForCausalLM(config).train()


class Text(torch.utils.data.Dataset):
    """Rows that count upwards by a step of their own."""

    def __len__(self):
        return 64

    def __getitem__(self, row):
        tokens = (torch.arange(LENGTH) * (1 + row % 7) + 11 * row) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}
