"""A test suite of gradient accumulation: as a project would write it for its own.

    pytest zoo/suites/gradient_accumulation.py            # right
    PLANTED=1 pytest zoo/suites/gradient_accumulation.py  # with the bug, which one test finds

The bug: the loss of a micro-batch is the mean over its own tokens, and their mean is taken over the
micro-batches. Where these have different numbers of tokens that is not the mean over all tokens.
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ttrace

VOCABULARY, WIDTH, ROWS, LENGTH, IGNORED = 32, 16, 8, 12, -100
PLANTED = bool(os.environ.get("PLANTED"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        return self.head(hidden + self.mlp(self.norm(hidden)))


def batch(step, padded):
    numbers = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=numbers)
    labels = tokens.roll(-1, 1)
    if padded:  # rows of different lengths
        lengths = torch.tensor([12, 11, 9, 8, 4, 3, 2, 2])[:, None]
        labels = labels.masked_fill(torch.arange(LENGTH)[None] >= lengths, IGNORED)
    return tokens, labels


def token_loss(logits, labels):
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def train(micro_batches=1, padded=False, mean_of_means=False):
    torch.manual_seed(0)
    world, rank = dist.get_world_size(), dist.get_rank()
    model = Model()
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ttrace.attach(model, optimizer)
    for step in range(2):
        tokens, labels = batch(step, padded)
        all_tokens = (labels != IGNORED).sum() / world
        count = micro_batches * world
        parts = list(zip(tokens.chunk(count), labels.chunk(count), strict=True))
        optimizer.zero_grad()
        for k, (tokens, labels) in enumerate(parts[rank::world]):
            last = k == micro_batches - 1
            with contextlib.nullcontext() if last or world == 1 else model.no_sync():
                loss = token_loss(model(tokens), labels)
                if mean_of_means:
                    loss = loss / (labels != IGNORED).sum() / micro_batches
                else:
                    loss = loss / all_tokens
                loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def accumulated(padded=False, mean_of_means=False):
    train(4, padded, mean_of_means)


def test_rows_of_one_length(ttrace):
    result = ttrace.compare(train, accumulated, ranks=(1, 1))
    assert result.within, result.text


def test_padded_rows(ttrace):
    result = ttrace.compare(padded, padded_and_accumulated, ranks=(1, 1))
    assert result.within, result.text


def test_two_ranks_that_reduce_once(ttrace):
    result = ttrace.compare(train, accumulated, ranks=(1, 2))
    assert result.within, result.text


def padded():
    train(padded=True)


def padded_and_accumulated():
    accumulated(padded=True, mean_of_means=PLANTED)
