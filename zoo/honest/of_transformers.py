"""transformers' Trainer as it is: it deals batches out, pads and averages by itself."""

import tempfile

from run import Run
from small_texts import model, texts, tokenizer
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

run = Run()
words = tokenizer()
low = 8 if run.options.pad == "none" else 2
data = [words(text, return_token_type_ids=False) for text in texts(32, low)]
Trainer(
    model=model(),
    args=TrainingArguments(
        output_dir=tempfile.gettempdir(),
        per_device_train_batch_size=8 // run.ranks // run.options.accumulate,
        gradient_accumulation_steps=run.options.accumulate,
        max_steps=3,
        learning_rate=1e-3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    ),
    train_dataset=data,
    data_collator=DataCollatorForLanguageModeling(words, mlm=False),
).train()
