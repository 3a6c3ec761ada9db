"""DistributedDataParallel's communication hooks: which one there is, and what it sends."""

import pytest

from test_torch_native import notes, run

SCRIPT = """
import sys
import torch, torch.distributed as dist
from torch import nn
import torch.distributed.nn.functional as together
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
import ttrace

dist.init_process_group("gloo")
world, rank = dist.get_world_size(), dist.get_rank()

def summing(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

def in_bfloat16(state, bucket):
    sent = bucket.buffer().to(torch.bfloat16) / world
    def received(future):
        return future.value()[0].to(torch.float32)
    return dist.all_reduce(sent, async_op=True).get_future().then(received)

kind = sys.argv[1]
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4)))
def register():
    if kind in ("summing", "gathers"):
        model.register_comm_hook(None, summing)
    if kind == "in_bfloat16":
        model.register_comm_hook(None, in_bfloat16)
    if kind == "built in":
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    if kind == "powerSGD":
        state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
early = len(sys.argv) > 2
if early:
    register()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ttrace.attach(model, optimizer)
if not early:
    register()
generator = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(4, 6, generator=generator)[rank::world]
    said = model(x)
    if kind == "gathers":
        said = torch.cat(together.all_gather(said))
    loss = said.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, rank, loss.item(), flush=True)
dist.destroy_process_group()
"""


def hook_of(folder):
    """The one that both ranks have."""
    first, second = notes(folder, "comm_hook")
    assert first == second
    return first


@pytest.mark.parametrize(
    ("kind", "early", "name", "sends"),
    [
        ("summing", [], "summing", ""),
        ("in_bfloat16", ["early"], "in_bfloat16", ""),
        ("built in", [], "BuiltinCommHookType.FP16_COMPRESS", "float16"),
    ],
)
def test_a_hook_is_named_whenever_it_was_registered(tmp_path, kind, early, name, sends):
    script, out = tmp_path / "loop.py", tmp_path / "out"
    script.write_text(SCRIPT)
    run(script, kind, *early, processes=2, out=out)
    hook = hook_of(out)
    assert (hook["name"], hook["sends"], hook["elements"]) == (name, sends, 6 * 8 + 8 + 8 * 4 + 4)
    assert hook["ranks"] == [0, 1]
    seen = [c for c in notes(out, "collective") if c["iteration"] == hook["iteration"]]
    sent = {"summing": "float32", "in_bfloat16": "bfloat16"}.get(kind)
    heard = [c for c in seen if c["phase"] in ("backward", "reduction") and c["rank"] == 0]
    assert {c["dtype"] for c in heard} == ({sent} if sent else set())
    assert sum(c["elements"] for c in heard) == (hook["elements"] if sent else 0)


def test_a_run_without_a_hook_names_none(tmp_path):
    script, out = tmp_path / "loop.py", tmp_path / "out"
    script.write_text(SCRIPT)
    run(script, "none", processes=2, out=out)
    assert not notes(out, "comm_hook")
    assert notes(out, "loss_unit")


def test_what_the_models_own_backward_sends_is_not_the_hooks(tmp_path):
    script, out = tmp_path / "loop.py", tmp_path / "out"
    script.write_text(SCRIPT)
    run(script, "gathers", processes=2, out=out)
    hook = hook_of(out)
    seen = [
        c for c in notes(out, "collective")
        if c["iteration"] == hook["iteration"] and c["rank"] == 0
        and c["phase"] in ("backward", "reduction")
    ]  # fmt: skip
    assert {c["node"] for c in seen if "node" in c} == {"_AllGatherBackward"}
    assert sum(c["elements"] for c in seen if "node" not in c) == hook["elements"]
