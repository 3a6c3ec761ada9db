"""A test suite of a transformer block that DTensors cut: as a project would write it for its own.

    pytest zoo/suites/tensor_parallel_block.py            # right
    PLANTED=1 pytest zoo/suites/tensor_parallel_block.py  # with the bug, which one test finds

The bug: the packed projection of attention holds all queries, then all keys, then all values. Cut
by its rows, a rank's piece is no query, key and value of its heads: shapes fit, and the whole
block on one rank is right.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import ttrace

WIDTH, HEADS, LENGTH, ROWS = 32, 4, 16, 4
PLANTED = bool(os.environ.get("PLANTED"))


class Attention(nn.Module):
    def __init__(self, packed_by_kind):
        super().__init__()
        self.packed_by_kind = packed_by_kind
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden):
        rows, length, _ = hidden.shape
        size = WIDTH // HEADS
        packed = self.qkv(hidden)
        if self.packed_by_kind:
            parts = [p.view(rows, length, -1, size) for p in packed.chunk(3, dim=-1)]
        else:
            parts = list(packed.view(rows, length, -1, 3, size).unbind(3))
        query, key, value = (part.transpose(1, 2) for part in parts)
        context = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(context.transpose(1, 2).reshape(rows, length, -1))


class Block(nn.Module):
    def __init__(self, packed_by_kind):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(packed_by_kind)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden):
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.mlp(self.mlp_norm(hidden))


def cut(block):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = {
        "attention.qkv": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
        "mlp.0": ColwiseParallel(),
        "mlp.2": RowwiseParallel(),
    }
    return parallelize_module(block, mesh, plan)


def train(packed_by_kind=False):
    torch.manual_seed(0)
    block = Block(packed_by_kind)
    if dist.get_world_size() > 1:
        block = cut(block)
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-3)
    ttrace.attach(block, optimizer)
    numbers = torch.Generator().manual_seed(1)
    for _ in range(2):
        hidden = torch.randn(ROWS, LENGTH, WIDTH, generator=numbers)
        optimizer.zero_grad()
        block(hidden).square().mean().backward()
        optimizer.step()


def test_cut_by_heads(ttrace):
    result = ttrace.compare(train, train)
    assert result.within, result.text


def test_packed_projection(ttrace):
    result = ttrace.compare(train, train, kwargs={"packed_by_kind": PLANTED})
    assert result.within, result.text


def test_cut_into_four(ttrace):
    result = ttrace.compare(train, train, ranks=(1, 4))
    assert result.within, result.text
