"""A regression on random numbers, in data parallel on any number of processes of one machine.

Every process draws the same global batch and takes its rows of it. `--no-sync` never reduces the
gradients, as a loop does that accumulates them and forgets to leave `no_sync`: each process then
trains a model of its own, and no loss says so.
"""

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ttrace

BATCH, WIDTH, STEPS = 8, 16, 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-sync", action="store_true")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, 1)
    )
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ttrace.attach(model, optimizer)  # does nothing unless started by `ttrace`

    mine = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    for _ in range(STEPS):
        inputs, wanted = torch.randn(BATCH, WIDTH), torch.randn(BATCH, 1)
        with model.no_sync() if arguments.no_sync else contextlib.nullcontext():
            loss = torch.nn.functional.mse_loss(model(inputs[mine]), wanted[mine])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
