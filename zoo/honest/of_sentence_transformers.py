"""sentence-transformers' trainer: pairs of sentences and how alike they are."""

import tempfile

from datasets import Dataset
from run import Run
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import CosineSimilarityLoss
from sentence_transformers.models import StaticEmbedding
from small_texts import texts, tokenizer

run = Run()
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer(), embedding_dim=16)], device="cpu")
alike = [row % 5 / 4 for row in range(32)]
data = {"first": texts(32), "second": texts(32, seed=1), "label": alike}
SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
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
    train_dataset=Dataset.from_dict(data),
    loss=CosineSimilarityLoss(model),
).train()
