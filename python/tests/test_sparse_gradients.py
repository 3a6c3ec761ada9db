"""Embeddings whose gradients are sparse: recorded as what they stand for, and reduced by Gloo."""

import subprocess
import sys

from launch_ranks import launcher
from test_torch_native import entries, notes

SCRIPT = """
import torch, torch.distributed as dist, ttrace
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Linear(4, 3))
model = nn.parallel.DistributedDataParallel(net)
words, head = net[0].weight, list(net[1].parameters())
optimizers = [torch.optim.SparseAdam([words], 0.1), torch.optim.SGD(head, 0.1)]
ttrace.attach(model, optimizers)
generator = torch.Generator().manual_seed(1)
for step in range(3):
    rows = torch.randint(20, (8, 5), generator=generator)[4 * rank : 4 * rank + 4]
    loss = model(rows).square().mean()
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print("step", step, rank, loss.item(), flush=True)
dist.destroy_process_group()
"""


def test_sparse_gradients_are_recorded_in_all_legs(tmp_path):
    script, out = tmp_path / "loop.py", tmp_path / "out"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "ttrace._cli", "record", "-o", str(out), "--legs", "noise:1",
         "--", *launcher(2), str(script)],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not notes(out, "stopped") and not notes(out, "not_observed")
    gradients = [
        e for e in entries(out) if e["type"] == "record" and e["fqn"] == "0.weight"
        and e["role"] in ("grad_local", "grad_reduced")
    ]  # fmt: skip
    assert {tuple(e["shape"]) for e in gradients} == {(20, 4)}
    assert {(e["leg"], e["role"]) for e in gradients} >= {
        ("real", "grad_local"),
        ("real", "grad_reduced"),
    }
    legs = {e["leg"] for e in entries(out) if e["type"] == "record"}
    assert "noise.1" in legs or (out / "legs" / "noise.1").is_dir()
