"""The loop of nanoGPT's train.py: batches at random places of a text, made by hand; an item read
ahead while the backward runs; a GradScaler that is switched off; an own GPT that returns its loss.

    python zoo/loops/nanogpt.py --accumulate 4
    torchrun --nproc-per-node 2 zoo/loops/nanogpt.py --accumulate 2
"""

import argparse
import contextlib
import math
import os

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--device", default="cpu", help="all ranks share a GPU")
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
options = parser.parse_args()

device = options.device
batch_size, block_size, vocab_size, n_layer, n_head, n_embd = 2, 16, 64, 2, 4, 32


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (
            part.view(B, T, n_head, C // n_head).transpose(1, 2)
            for part in self.c_attn(x).split(n_embd, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=False)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=False)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList(Block() for _ in range(n_layer)),
                "ln_f": nn.LayerNorm(n_embd),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                scale = math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 1
                nn.init.normal_(parameter, std=0.02 / scale)

    def forward(self, idx, targets=None):
        positions = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(positions)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


ddp = int(os.environ.get("RANK", -1)) != -1
rank = 0
if ddp:
    init_process_group("gloo")
    rank = int(os.environ["RANK"])
torch.manual_seed(1337 + rank)

data = torch.cat([(torch.arange(64) * step) % vocab_size for step in range(1, 60)])


def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


ptdtype = getattr(torch, options.dtype)
low = options.dtype != "float32"
ctx = torch.amp.autocast(device, ptdtype) if low else contextlib.nullcontext()
model = GPT().to(device)
scaler = torch.amp.GradScaler(device, enabled=options.dtype == "float16")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
if options.compile:
    model = torch.compile(model)
if ddp:
    model = DDP(model)
ttrace.attach(model, optimizer)

X, Y = get_batch()
for step in range(3):
    for micro_step in range(options.accumulate):
        if ddp:
            model.require_backward_grad_sync = micro_step == options.accumulate - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / options.accumulate
        X, Y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if rank == 0:
        print(f"step {step} loss {loss.item() * options.accumulate:.6f}", flush=True)
if ddp:
    destroy_process_group()
