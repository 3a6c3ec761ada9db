"""Gradients that kernels add up token by token in low precision, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch_ranks import launcher
from runs import BIN, ttrace

# A layer norm on a CPU adds up its gradients token by token in bfloat16, and so does a table.
SCRIPT = """
import os, sys, torch, torch.distributed as dist, ttrace
from torch import nn

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    dist.init_process_group("gloo")
torch.manual_seed(1)
ROWS, LENGTH, WIDTH = 8, int(sys.argv[1]), 32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x, kinds):
        return self.head(self.norm(x + self.kinds(kinds)))


model = Net().bfloat16()
if ranks > 1:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(2)
for _ in range(2):
    x = torch.randn(ROWS, LENGTH, WIDTH, generator=data).bfloat16().chunk(ranks)[rank]
    kinds = torch.randint(2, (ROWS, LENGTH), generator=data).chunk(ranks)[rank]
    loss = nn.functional.mse_loss(model(x, kinds).float(), torch.ones(len(x), LENGTH, 4))
    loss.backward()
    if "--bug" in sys.argv and ranks > 1:
        next(p for n, p in model.named_parameters() if n.endswith("norm.bias")).grad.mul_(2)
    optimizer.step()
    optimizer.zero_grad()
if ranks > 1:
    dist.destroy_process_group()
"""


def verdict(folder: Path, length: int, *flags: str):
    script, reference, candidate = folder / "sums.py", folder / "reference", folder / "candidate"
    script.write_text(SCRIPT)
    only = ("--iterations", "0:1")
    one = (BIN / "python", script, str(length))
    done = ttrace("record", "-o", reference, "--as-reference", *only, "--", *one)
    assert done.code == 0, done.explain()
    two = (*launcher(2), *one[1:], *flags)
    done = ttrace("record", "-o", candidate, "--graft", reference, *only, "--", *two)
    assert done.code == 0, done.explain()
    report = folder / "report"
    return ttrace("check", reference, candidate, "-o", report, folder=report)


@pytest.mark.matrix
def test_what_a_kernel_loses_of_a_sum_over_tokens_is_no_fault(tmp_path: Path) -> None:
    # Over 2,048 tokens half of a bias's gradient is lost, over half of them another part.
    outcome = verdict(tmp_path, 256)
    assert outcome.code == 2, outcome.explain()
    lost = {t["fqn"] for t in outcome.result["tensors"] if t["verdict"] == "not_checkable"}
    assert {"norm.bias"} <= lost <= {"norm.bias", "norm.weight", "kinds.weight"}, lost


@pytest.mark.matrix
def test_a_factor_on_a_sum_over_tokens_is_found(tmp_path: Path) -> None:
    outcome = verdict(tmp_path, 32, "--bug")
    assert outcome.code == 1, outcome.explain()
    assert outcome.first["fqn"] == "norm.bias"
