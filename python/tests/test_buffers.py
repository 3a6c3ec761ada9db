"""Buffers that forwards change are compared as tensors are: given once by the reference, and then
each run's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ttrace
from test_torch_native import Tensors, diff, notes


class Normaliser(nn.Module):
    """Computes with a running mean that its own forwards have made. Buffers of other kinds beside
    it: one that is put in place of another, one that stays, a count, one that the run begins
    without."""

    def __init__(self, begin: float) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("mean", torch.full((6,), begin))
        self.register_buffer("other", torch.full((6,), begin), persistent=False)
        self.register_buffer("fixed", torch.full((3,), begin))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.late = None

    def forward(self, x):
        y = self.linear(x - self.mean)
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
            self.other = self.other + x.mean(0)
            if "late" not in self._buffers:
                del self.late
                self.register_buffer("late", torch.zeros(6))
            self.late += 1
        return y


def loop(out, begin):
    torch.manual_seed(0)
    model = Normaliser(begin)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ttrace.attach(model, optimizer, out=str(out))
    generator = torch.Generator().manual_seed(3)
    found = []
    for _ in range(3):
        found.append({name: b.clone() for name, b in model.named_buffers()})
        loss = model(torch.randn(8, 6, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found


def buffers(tensors):
    return {key[0] + str(key[2]) for key in tensors.shapes if key[1] == "buffer"}


def test_what_the_reference_changes_is_given_once_and_the_rest_is_said(tmp_path, monkeypatch):
    loop(tmp_path / "reference", 0.0)
    reference = Tensors(tmp_path / "reference", tmp_path / "scratch1")
    names = ("mean", "other", "fixed", "count")
    assert buffers(reference) == {f"{n}{i}" for n in names for i in (0, 1)} | {"late1"}

    out = tmp_path / "candidate"
    out.mkdir()
    (out / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    monkeypatch.setenv("TTRACE_OUT", str(out))
    monkeypatch.setenv("TTRACE_GRAFT", str(tmp_path / "reference"))
    monkeypatch.setenv("TTRACE_GRAFT_WHAT", "weights")
    found = loop(out, 0.5)
    candidate = Tensors(out, tmp_path / "scratch2")

    def both(name, iteration):
        key = (name, "buffer", iteration, 0, "", "forward")
        return reference[key], candidate[key]

    for name in ("mean", "other"):
        for iteration in (0, 1):
            assert torch.equal(*both(name, iteration)), (name, iteration)
        # What the run made of the reference's is its own.
        assert torch.equal(both(name, 1)[1], found[1][name])
    assert not torch.equal(*both("fixed", 0))
    assert {n["fqn"] for n in notes(out, "not_grafted")} == {"fixed"}
    (first,) = [n for n in notes(out, "graft") if n["iteration"] == 0 and n["what"] == "weights"]
    assert first["differs"] == 2


RUNNING_MEAN = """
import os, sys, torch, torch.distributed as dist, ttrace
from torch import nn
ranks, rank = (int(os.environ.get(name, n)) for name, n in (("WORLD_SIZE", 1), ("RANK", 0)))
torch.manual_seed(0)
class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(6))
    def forward(self, x):
        y = self.linear(x - self.mean if {uses} else x)
        mean = x.mean(0)
        if ranks > 1 and {reduces}:
            dist.all_reduce(mean)
            mean /= ranks
        self.mean.lerp_(mean, 0.1)
        return y
model = Normalised()
if ranks > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model, broadcast_buffers={broadcasts})
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
ttrace.attach(model, optimizer)
generator = torch.Generator().manual_seed(5)
for step in range(3):
    x = torch.randn(8, 6, generator=generator).chunk(ranks)[rank]
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if ranks > 1:
    dist.destroy_process_group()
"""


def running_mean(tmp_path, **options):
    script = tmp_path / "mean.py"
    text = RUNNING_MEAN
    for name, value in {"uses": True, "reduces": True, "broadcasts": True, **options}.items():
        text = text.replace("{" + name + "}", str(value))
    script.write_text(text)
    return diff(tmp_path / "out", script, reference=script)


def test_a_statistic_of_all_ranks_is_within(tmp_path):
    code, result = running_mean(tmp_path)
    assert code == 0, result["reason"]
    judged = {t["iteration"] for t in result["tensors"] if t["role"] == "buffer"}
    assert judged == {0, 1} and "out of bounds" not in str(result["coverage"])


@pytest.mark.parametrize("broadcasts", [True, False])
def test_a_statistic_that_is_not_reduced_is_found_where_it_is_used(tmp_path, broadcasts):
    code, result = running_mean(tmp_path, reduces=False, broadcasts=broadcasts)
    assert code == 1, result["reason"]
    first = result["culprits"][0]
    assert (first["fqn"], first["role"], first["iteration"]) == ("mean", "buffer", 1)


def test_a_statistic_of_own_rows_that_nothing_uses_is_honest(tmp_path):
    code, result = running_mean(tmp_path, uses=False, reduces=False, broadcasts=False)
    assert code == 0, result["reason"]
    assert "a statistic of a rank's own rows" in str(result["coverage"]["explained"])
