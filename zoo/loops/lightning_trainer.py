"""Lightning's Trainer, with accumulation, clipping and validation.

python zoo/loops/lightning_trainer.py --accumulate 4
torchrun --nproc-per-node 2 zoo/loops/lightning_trainer.py --accumulate 2
"""

import argparse
import os

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--manual", action="store_true", help="manual optimization")
options = parser.parse_args()


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = not options.manual
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = functional.cross_entropy(self(x), y)
        if options.manual:
            self.step_on(loss / options.accumulate, index)
        print(f"loss {loss.item():.6f}")
        return loss

    def step_on(self, loss, index):
        optimizer = self.optimizers()
        self.manual_backward(loss)
        if (index + 1) % options.accumulate == 0:
            self.clip_gradients(optimizer, 1.0, "norm")
            optimizer.step()
            optimizer.zero_grad()

    def validation_step(self, batch, index):
        x, y = batch
        self.log("validation", functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)

    def on_fit_end(self):
        total = sum(parameter.double().sum() for parameter in self.parameters())
        print(f"state {total.item():.12f}")


lightning.seed_everything(0, verbose=False)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(
    torch.randn(64, 8, generator=generator), torch.randint(0, 4, (64,), generator=generator)
)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
own = {"gradient_clip_val": 1.0, "accumulate_grad_batches": options.accumulate}
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=ranks,
    strategy="ddp" if ranks > 1 else "auto",
    max_steps=3,
    val_check_interval=options.accumulate,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    **({} if options.manual else own),
)
trainer.fit(Classifier(), DataLoader(data, batch_size=2), DataLoader(data, batch_size=8))
