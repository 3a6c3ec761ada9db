"""Lightning's manual optimization: two networks in one module, whose optimizers step in turn, each
with only its own parameters wanting gradients."""

import argparse
import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE, SIZE, WIDTH, ROWS = 8, 12, 32, 16


def loss_of(scores, is_real):
    target = torch.full_like(scores, float(is_real))
    return nn.functional.binary_cross_entropy_with_logits(scores, target)


class Adversarial(lightning.LightningModule):
    def __init__(self, bug):
        super().__init__()
        self.automatic_optimization = False
        self.bug = bug
        self.generator = nn.Sequential(
            nn.Linear(NOISE, WIDTH), nn.LayerNorm(WIDTH), nn.GELU(), nn.Linear(WIDTH, SIZE)
        )
        self.critic = nn.Sequential(nn.Linear(SIZE, WIDTH), nn.LeakyReLU(0.2), nn.Linear(WIDTH, 1))

    def training_step(self, batch, _):
        pictures, noise = batch
        of_critic, of_generator = self.optimizers()
        self.toggle_optimizer(of_critic)
        real = loss_of(self.critic(pictures), True)
        fake = loss_of(self.critic(self.generator(noise).detach()), False)
        self.manual_backward(real * (0.5 if self.bug else 1.0) + fake)
        self.clip_gradients(of_critic, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        of_critic.step()
        of_critic.zero_grad()
        self.untoggle_optimizer(of_critic)
        self.toggle_optimizer(of_generator)
        self.manual_backward(loss_of(self.critic(self.generator(noise)), True))
        of_generator.step()
        of_generator.zero_grad()
        self.untoggle_optimizer(of_generator)

    def configure_optimizers(self):
        adam = torch.optim.Adam
        return [adam(self.critic.parameters(), 1e-3), adam(self.generator.parameters(), 1e-3)]


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
lightning.seed_everything(0)
ranks = int(os.environ.get("WORLD_SIZE", 1))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=ranks,
    strategy="ddp_find_unused_parameters_true" if ranks > 1 else "auto",
    max_steps=8,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
data = TensorDataset(torch.randn(64, SIZE), torch.randn(64, NOISE))
trainer.fit(Adversarial(options.bug), DataLoader(data, ROWS // ranks))
