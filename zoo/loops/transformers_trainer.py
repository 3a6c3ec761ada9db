"""transformers' own Trainer.

python zoo/loops/transformers_trainer.py --accumulate 4
torchrun --nproc-per-node 2 zoo/loops/transformers_trainer.py --accumulate 2
"""

import argparse
import os
import tempfile

import tiny_llama
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--lora", action="store_true", help="train a LoRA of peft instead")
parser.add_argument("--cuda", action="store_true", help="all ranks share a GPU")
options = parser.parse_args()

model = tiny_llama.model()
if options.lora:
    from peft import LoraConfig, get_peft_model

    modules = ["q_proj", "v_proj"]
    model = get_peft_model(model, LoraConfig(r=4, lora_dropout=0.0, target_modules=modules))

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=not options.cuda,
        ddp_backend="gloo" if "RANK" in os.environ else None,
        max_steps=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=tiny_llama.Text()).train()
