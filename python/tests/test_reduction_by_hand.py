"""A loop that reduces its gradients itself, in real ranks: nothing changes, and everything aligns
with one process, wherever the loop has its hooks."""

import pytest

from test_torch_native import Tensors, assert_aligned, ends, notes, run

SCRIPT = """
import hashlib, os, sys
import torch, torch.distributed as dist
import ttrace
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
rank, ranks = 0, 1
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def reduced(gradient):
    dist.all_reduce(gradient := gradient / ranks)
    return gradient
def add_hooks():
    return [p.register_hook(reduced) for p in net.parameters()] if ranks > 1 else []
if how == "before":
    add_hooks()
ttrace.attach(net, optimizer)
rows = torch.randn(24, 6, generator=torch.Generator().manual_seed(1))
for step in range(3):
    for micro_batch in range(2):
        out = net(rows[8 * step + 4 * micro_batch :][:4].chunk(ranks)[rank])
        hooks = add_hooks() if how == "after" else []
        (out.square().mean() / 2).backward()
        for hook in hooks:
            hook.remove()
    if how == "flat" and ranks > 1:
        flat = torch.cat([p.grad.flatten() for p in net.parameters()])
        dist.all_reduce(flat)
        begin = 0
        for p in net.parameters():
            p.grad.copy_(flat[begin : begin + p.numel()].view_as(p) / ranks)
            begin += p.numel()
    optimizer.step()
    optimizer.zero_grad()
    state = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for p in net.parameters():
        state.update(p.detach().numpy().tobytes())
    os.write(1, f"step {step} {rank} {state.hexdigest()}\\n".encode())
if dist.is_initialized():
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["after", pytest.param("before", marks=pytest.mark.matrix), "flat"])
def test_its_gradients_are_those_of_one_process(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run(script, how, out=tmp_path / "one")
    captured, log = run(script, how, processes=2, out=tmp_path / "two")
    assert "ttrace:" not in log
    if how == "after":
        plain, _ = run(script, how, processes=2)
        assert captured == plain
    assert all(end["complete"] for end in ends(tmp_path / "two"))
    reference = Tensors(tmp_path / "one", tmp_path / "scratch1")
    candidate = Tensors(tmp_path / "two", tmp_path / "scratch2")
    assert_aligned(reference, candidate)
    assert {key[1] for key in reference.shapes} >= {"grad_local", "grad_reduced"}
    reductions = [c for c in notes(tmp_path / "two", "collective") if c["phase"] == "reduction"]
    assert reductions
    assert {bool(c["parameters"]) for c in reductions} == {how != "flat"}
    assert bool(notes(tmp_path / "two", "collectives_not_seen")) == (how == "flat")
    assert not notes(tmp_path / "two", "reduced_early")
    assert {"wrapper" in note["text"] for note in notes(tmp_path / "two", "notice")} == {True}


LATE = """
import os, torch, torch.distributed as dist, ttrace
from torch import nn
dist.init_process_group("gloo")
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ttrace.attach(net, optimizer)
items = iter(torch.utils.data.DataLoader(torch.randn(8, 6), batch_size=4))
first = next(items)
net = nn.parallel.DistributedDataParallel(net)
net(first).square().mean().backward()
optimizer.step()
os.write(1, b"step done\\n")
dist.destroy_process_group()
"""


@pytest.mark.matrix
def test_a_wrapper_that_comes_after_the_first_data_is_refused(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LATE)
    _, log = run(script, processes=2, out=tmp_path / "out")
    assert log.count("was wrapped after the loop had read its first data; wrap it before") == 2
