"""Lightning's own loop, with its accumulation and clipping; attached by hand."""

import lightning
import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy

import ttrace


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))

    def training_step(self, batch, _):
        return cross_entropy(self.net(batch[0]), run.labels(batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)

    def on_train_start(self):
        ttrace.attach(self.trainer.strategy.model, self.optimizers().optimizer)


run = Run()
order = [rows for n in range(3) for rows in run.batches(n, list(range(8 * n, 8 * n + 8)))]
rows_of_data = torch.utils.data.TensorDataset(run.normal(8), run.integers(5))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=run.ranks,
    strategy="ddp" if run.ranks > 1 else "auto",
    max_epochs=1,
    precision="32-true" if torch.get_default_dtype() == torch.float32 else "64-true",
    accumulate_grad_batches=run.options.accumulate,
    gradient_clip_val=1.0,
    use_distributed_sampler=False,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), torch.utils.data.DataLoader(rows_of_data, batch_sampler=order))
