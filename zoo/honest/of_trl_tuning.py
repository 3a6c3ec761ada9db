"""trl's SFTTrainer as it is."""

import tempfile

from datasets import Dataset
from run import Run
from small_texts import model, texts, tokenizer
from trl import SFTConfig, SFTTrainer

run = Run()
low = 8 if run.options.pad == "none" else 2
SFTTrainer(
    model=model(),
    args=SFTConfig(
        output_dir=tempfile.gettempdir(),
        per_device_train_batch_size=8 // run.ranks // run.options.accumulate,
        gradient_accumulation_steps=run.options.accumulate,
        max_steps=3,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    ),
    train_dataset=Dataset.from_list([{"text": text} for text in texts(32, low)]),
    processing_class=tokenizer(),
).train()
