"""Two networks that are trained against each other, each with an optimizer of its own, which step
in turn. With --without-gradients the critic's generated half is made under no_grad."""

import argparse
import contextlib

import torch
from ranks import data_parallel, end, part, start
from torch import nn

import ttrace

NOISE, SIZE, WIDTH, ROWS = 8, 12, 32, 16


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.Linear(NOISE, WIDTH), nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, SIZE)

    def forward(self, noise):
        return torch.tanh(self.out(nn.functional.gelu(self.norm(self.up(noise)))))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.score = nn.Linear(SIZE, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, picture):
        return self.score(nn.functional.leaky_relu(self.inner(picture), 0.2))


def loss_of(scores, is_real):
    target = torch.full_like(scores, float(is_real))
    return nn.functional.binary_cross_entropy_with_logits(scores, target)


def rows(step, width, number):
    """Of this rank."""
    drawn = torch.Generator().manual_seed(100 * step + number)
    batch = torch.randn(ROWS, width, generator=drawn)
    return batch[rank::ranks] if options.dealt else part(batch, rank, ranks)


parser = argparse.ArgumentParser()
parser.add_argument("--without-gradients", action="store_true")
parser.add_argument("--dealt", action="store_true", help="rows go to the ranks in turn")
parser.add_argument("--bug", default="")
options = parser.parse_args()
rank, ranks = start()
generator, critic = Generator(), Critic()
generator = data_parallel(generator)
if options.bug != "one wrapped":
    critic = data_parallel(critic)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.99))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.99))
if options.bug == "steps both":
    of_generator.add_param_group({"params": list(critic.parameters())})
ttrace.attach({"generator": generator, "critic": critic}, [of_critic, of_generator])
for step in range(4):
    if options.bug != "keeps gradients" or step == 0:
        of_critic.zero_grad()
    loss = loss_of(critic(rows(step, SIZE, 0)), True)
    fake_context = torch.no_grad() if options.without_gradients else contextlib.nullcontext()
    with fake_context:
        fake = generator(rows(step, NOISE, 1))
    if options.bug != "attached":
        fake = fake.detach()
    again = loss_of(critic(fake), False)
    (loss * (0.5 if options.bug == "half" else 1.0) + again).backward()
    of_critic.step()
    if options.bug != "attached":
        of_generator.zero_grad()
    loss_of(critic(generator(rows(step, NOISE, 2))), True).backward()
    of_generator.step()
    of_generator.zero_grad()
end()
