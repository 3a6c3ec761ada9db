"""Lightning under DDP: its `optimizer.step(closure)` holds forward and backward."""

import os

import lightning
import torch
from token_model import TokenModel, loss_of, rows
from torch.utils.data import DataLoader, TensorDataset

import ttrace


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = TokenModel()

    def training_step(self, batch, _):
        return loss_of(self.model, batch[0])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)

    def on_train_start(self):
        ttrace.attach(self.trainer.strategy.model, self.optimizers().optimizer)


lightning.seed_everything(0)
ranks = int(os.environ.get("WORLD_SIZE", 1))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=ranks,
    strategy="ddp",
    max_steps=3,
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), DataLoader(TensorDataset(rows(0, 64)), 8 // ranks))
