"""trl's DPOTrainer as it is, with a frozen model of other weights."""

import tempfile

from datasets import Dataset
from run import Run
from small_texts import model, texts, tokenizer
from trl import DPOConfig, DPOTrainer

run = Run()
low = 6 if run.options.pad == "none" else 2
columns = [texts(32, low, 6, seed) for seed in range(3)]
data = [
    {"prompt": prompt, "chosen": " " + better, "rejected": " " + worse}
    for prompt, better, worse in zip(*columns, strict=True)
]
DPOTrainer(
    model=model(0),
    ref_model=model(1),
    args=DPOConfig(
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
    train_dataset=Dataset.from_list(data),
    processing_class=tokenizer(),
).train()
