"""What recording does to the heap of the process that trains."""

import subprocess
import sys

# Blocks that the C library keeps in its heap once it has freed one like them, as tensors of a CPU
# are, and next to each what is recorded of it.
TRAINING = """
import re, sys, torch
from ttrace import _native

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

def noisy(values):
    factors = 2 * torch.rand(columns, generator=torch.Generator().manual_seed(9)) - 1
    return values * (1 + factors * 2.0**-20)

rows, columns, ranks = 2048, 2048, 4
base = torch.ones(rows, columns)
shape = [rows // ranks, columns]
writer = None
if len(sys.argv) > 1:
    writer = _native.Writer(sys.argv[1], 0, ranks, [("tp", ranks)], [0])
for step in range(100):
    if step == 20:
        before = resident()
    if writer:
        spec = writer.spec(
            f"layers.{step}", "output", "0", "float32", shape, "tp:Shard(0)", -1, 0, (1, 1), []
        )
    whole = base * (1 + step)
    piece = noisy(whole)[: rows // ranks]
    if writer:
        at = piece.data_ptr()
        writer.append(spec, "real", 0, 0, "forward", -1, 0, at, [columns, 1])
        writer.flush()
print(resident() - before)
"""


def growth(*arguments):
    command = [sys.executable, "-c", TRAINING, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_it_does_not_grow_with_every_tensor(tmp_path):
    """80 tensors of 17 MB, each gone before the next: the heap has room for all in turn. Small
    pieces of it that were left behind between them made it grow by a tensor with most of them."""
    assert growth(tmp_path / "trace") < growth() + 300  # MB
