"""trl's DPOTrainer as it is, with a small random model and a frozen one."""

import os
import random
import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import DPOConfig, DPOTrainer

WORDS = "the a cat dog sat ran on under mat tree big small red blue and then it was".split()


def tokenizer():
    numbers = {word: n for n, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def model(seed):
    set_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    marks = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes, **heads, **marks))


def text(source, most):
    return " ".join(source.choice(WORDS) for _ in range(source.randint(2, most)))


source = random.Random(0)
pairs = [
    {
        "prompt": text(source, 6),
        "chosen": " " + text(source, 8),
        "rejected": " " + text(source, 8),
    }
    for _ in range(32)
]
settings = DPOConfig(
    output_dir=os.path.join(tempfile.gettempdir(), "preference_trainer"),
    per_device_train_batch_size=4 // int(os.environ.get("WORLD_SIZE", 1)),
    max_steps=3,
    pad_to_multiple_of=32,
    learning_rate=1e-3,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
DPOTrainer(
    model=model(0),
    ref_model=model(1),
    args=settings,
    train_dataset=Dataset.from_list(pairs),
    processing_class=tokenizer(),
).train()
