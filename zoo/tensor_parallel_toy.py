"""A small language model cut over ranks by torch's own tensor parallelism (DTensor).

All ranks see the same data; with one process the same modules run whole.

    python zoo/tensor_parallel_toy.py
    torchrun --nproc-per-node 2 zoo/tensor_parallel_toy.py --sp
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import ttrace

VOCABULARY, LENGTH, WIDTH, HEADS, DEPTH = 64, 16, 32, 4, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows, length, _ = hidden.shape
        # -1: a rank has only its own heads.
        query, key, value = (
            linear(hidden).view(rows, length, -1, WIDTH // HEADS).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        context = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(context.transpose(1, 2).reshape(rows, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.up(hidden)))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.ffn_norm = nn.LayerNorm(WIDTH)
        self.ffn = FeedForward()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.ffn(self.ffn_norm(hidden))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


def cut(model: LanguageModel, mesh: DeviceMesh, sequence_parallel: bool) -> None:
    """Megatron's cut: the first linears of a pair by columns, the second by rows.

    With sequence parallelism the norms, and the residual stream between the pairs, hold a part
    of the sequence each.
    """
    stream = Shard(1) if sequence_parallel else Replicate()
    for layer in model.layers:
        plan = {
            name: ColwiseParallel()
            for name in ("attention.query", "attention.key", "attention.value", "ffn.up")
        }
        plan["attention.out"] = RowwiseParallel(output_layouts=stream)
        plan["ffn.down"] = RowwiseParallel(output_layouts=stream)
        if sequence_parallel:
            plan["attention_norm"] = plan["ffn_norm"] = SequenceParallel()
            plan["attention"] = plan["ffn"] = PrepareModuleInput(
                input_layouts=(stream,), desired_input_layouts=(Replicate(),)
            )
        parallelize_module(layer, mesh, plan)
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=stream),
        "head": ColwiseParallel(input_layouts=stream, output_layouts=Replicate()),
    }
    if sequence_parallel:
        plan["norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sp", action="store_true", help="sequence parallel too")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = LanguageModel()
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
        cut(
            model,
            init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",)),
            args.sp,
        )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    ttrace.attach(model, optimizer)

    generator = torch.Generator().manual_seed(args.seed)
    calls = args.global_batch // args.micro_batch
    for step in range(args.steps):
        starts = torch.randint(VOCABULARY, (args.global_batch, 1), generator=generator)
        batch = (starts + 3 * torch.arange(LENGTH + 1)) % VOCABULARY
        total = torch.zeros(())
        for rows in batch.split(args.micro_batch):
            logits = model(rows[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()) / calls
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        if not distributed or dist.get_rank() == 0:
            print(f"step {step} loss {total.item():.9g}", flush=True)

    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
