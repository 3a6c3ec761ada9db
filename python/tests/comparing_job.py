"""Ranks of a job that compare in it; what each found is left in a file. See test_compare_in_job.py.

torchrun --nproc-per-node 3 comparing_job.py FOLDER
"""

import contextlib
import json
import os
import random
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import ttrace

C10D = dist.distributed_c10d
drawn = []  # at the begin of each leg


def train(model, rows):
    """Two steps; `rows` of a batch are this rank's."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ttrace.attach(model, optimizer)
    numbers = torch.Generator().manual_seed(1)
    for _ in range(2):
        x = torch.randn(8, 16, generator=numbers)[rows]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def block():
    """Of values that nobody has seeded: each leg has to begin with the same random states."""
    drawn.append((torch.rand(1).item(), random.random(), numpy.random.rand()))
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))


def data_parallel(bug=""):
    model, world, rank = block(), dist.get_world_size(), dist.get_rank()
    assert os.environ["WORLD_SIZE"] == str(world) and os.environ["RANK"] == str(rank)
    # Another machine may have seeded it otherwise: DistributedDataParallel sends rank 0's.
    wrapped = DistributedDataParallel(model) if world > 1 else model
    if bug == "raises" and rank == 1:
        raise RuntimeError("a fault of rank 1")
    silent = wrapped.no_sync() if bug == "no reduction" else contextlib.nullcontext()
    with silent:
        train(wrapped, slice(rank, None, world))


def tensor_parallel():
    """Makes device meshes, ends its own group, and changes what a process has."""
    model, world = block(), dist.get_world_size()
    if world > 1:
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
        # DTensor does not send what each rank has made by itself.
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        model = parallelize_module(model, mesh, plan)
    train(model, slice(None))
    random.random(), numpy.random.rand(), torch.rand(1)
    os.environ["OF_THE_FUNCTION"] = "1"
    dist.destroy_process_group()


def state(groups):
    return {
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate()[1],
        "numpy": numpy.random.get_state()[1].tolist(),
        "environment": dict(os.environ),
        "groups": sorted(map(str, C10D._world.pg_names.values())),
        "count": C10D._world.group_count,
        "named": [str(C10D._resolve_process_group(g.group_name).size()) for g in groups],
        "excepthook": repr(sys.excepthook),
        "rank": [dist.get_rank(), dist.get_world_size()],
    }


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = dist.new_group([1, 2])
    torch.manual_seed(rank)
    torch.rand(3)
    before = state([dist.group.WORLD, pair] if rank else [dist.group.WORLD])
    found = {}

    def compare(name, *functions, **options):
        result = ttrace.compare(*functions, **options)
        first = result.culprits[0].fqn if result.culprits else ""
        found[name] = [result.verdict, first, result.compared, result.reason, result.text]

    for name in sys.argv[2:]:
        if name == "data parallel":
            compare(name, data_parallel, data_parallel, group=dist.group.WORLD)
        elif name == "no reduction":
            bad = lambda: data_parallel("no reduction")  # noqa: E731
            compare(name, data_parallel, bad, group=dist.group.WORLD, iterations=1)
        elif name == "raises":
            compare(name, data_parallel, data_parallel, group=dist.group.WORLD, args=("raises",))
        elif name == "of a pair":
            if rank:
                compare(name, tensor_parallel, tensor_parallel, group=pair)
        elif name == "too many":
            try:
                compare(name, data_parallel, data_parallel, ranks=(1, 4), group=dist.group.WORLD)
            except ValueError as error:
                found[name] = str(error)
        elif name == "not of it" and rank == 0:
            try:
                compare(name, data_parallel, data_parallel, group=pair)
            except ValueError as error:
                found[name] = str(error)
    total = torch.ones(2)
    dist.all_reduce(total)
    if rank:
        dist.all_reduce(total, group=pair)
    after = state([dist.group.WORLD, pair] if rank else [dist.group.WORLD])
    changed = [key for key in before if before[key] != after[key]]
    content = {"found": found, "changed": changed, "total": total.tolist(), "drawn": drawn}
    Path(folder, f"rank-{rank}.json").write_text(json.dumps(content))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
