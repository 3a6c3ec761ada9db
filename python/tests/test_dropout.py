"""Dropout in captured runs: kept to the last bit, or off in every leg; and what masks say."""

import itertools
import json
import re

import pytest
import torch

from captured_run import compared, index, run
from test_torch_native import notes
from test_torch_native import run as run_script

ONE_STEP = {"TTRACE_ITERATIONS": "0:1"}

# Every way to drop values that a module or a function of torch has, on one process or under DDP.
SCRIPT = """
import hashlib, os, sys
import torch, torch.distributed as dist
from torch import nn
import ttrace
distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo")
rank = dist.get_rank() if distributed else 0
p = float(sys.argv[1])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)
        self.plain, self.in_place = nn.Dropout(p), nn.Dropout(p, inplace=True)
        self.heads = nn.MultiheadAttention(32, 4, dropout=p, batch_first=True)
        self.zeros, self.alpha = nn.Dropout1d(p), nn.AlphaDropout(p)
    def forward(self, x):
        x = self.first(x)
        x = self.plain(x.relu() if "zeros" in sys.argv else x)
        x = x + self.heads(x, x, x, need_weights=False)[0] + self.heads(x, x, x)[0]
        x = nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)
        x = self.in_place(x * 1.5) + self.alpha(self.zeros(x))
        return self.last(nn.functional.dropout(x, p, self.training))

torch.manual_seed(1)
net = model = Net()
if distributed:
    model = nn.parallel.DistributedDataParallel(net)
torch.manual_seed(1 if "alike" in sys.argv else 1 + rank)
data = torch.Generator().manual_seed(100 + rank)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ttrace.attach(model, optimizer)
for step in range(3):
    x = torch.randn(4, 8, 16, generator=data)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    drawn = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    os.write(1, f"step {step} {rank} {loss.item()!r} {drawn}\\n".encode())
if distributed:
    dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def values(folder):
    """Checksums of the real leg."""
    names = ("fqn", "role", "arg", "micro_batch", "call", "pass", "iteration")
    entries = [e for e in index(folder) if e["type"] == "record" and e["leg"] == "real"]
    assert entries
    return {tuple(e[n] for n in names): e["xxh3"] for e in entries}


def masks(folder, processes=1):
    """Notes of masks of all ranks, each with its rank."""
    return [
        {**e["data"], "rank": rank}
        for rank in range(processes)
        for e in index(folder, rank)
        if e.get("kind") == "dropout_mask"
    ]


def test_kept_dropout_changes_nothing_and_leaves_nothing_behind(script, tmp_path):
    plain, _ = run_script(script, "0.25")
    captured, log = run_script(script, "0.25", out=tmp_path / "t")
    assert captured == plain
    assert "ttrace:" not in log
    (note,) = notes(tmp_path / "t", "dropout")
    assert (note["p_max"], note["off"], note["calls"]) == (0.25, False, 8)


def test_switched_off_it_is_a_probability_of_zero(script, tmp_path):
    run_script(script, "0.0", out=tmp_path / "zero", TTRACE_ITERATIONS="0:3")
    _, log = run_script(
        script, "0.25", out=tmp_path / "off", TTRACE_DROPOUT="off", TTRACE_ITERATIONS="0:3"
    )
    assert "ttrace:" not in log
    assert values(tmp_path / "off") == values(tmp_path / "zero")
    assert not notes(tmp_path / "zero", "dropout")
    (note,) = notes(tmp_path / "off", "dropout")
    assert note["off"] is True
    # The masks are drawn all the same, and are the audit's.
    run_script(script, "0.25", out=tmp_path / "on")
    first = [n for n in masks(tmp_path / "on") if n["fqn"] == "plain" and n["iteration"] == 0]
    again = [n for n in masks(tmp_path / "off") if n["fqn"] == "plain" and n["iteration"] == 0]
    assert first == again
    assert len(first) == 1
    # Zeros in the input are no part of a mask.
    run_script(script, "0.25", "zeros", out=tmp_path / "zeros", TTRACE_DROPOUT="off")
    (of_zeros,) = [n for n in masks(tmp_path / "zeros") if n["fqn"] == "plain"][:1]
    assert of_zeros["mask"] == again[0]["mask"]


def test_a_mask_is_what_it_is_said_to_be(script, tmp_path):
    run_script(script, "0.25", out=tmp_path / "t")
    found = masks(tmp_path / "t")
    assert {n["fqn"] for n in found} >= {"plain", "in_place", "heads", ""}
    (plain,) = [n for n in found if n["fqn"] == "plain" and n["iteration"] == 1]
    assert plain["shape"] == [4, 8, 32]
    assert plain["elements"] == 4 * 8 * 32
    assert not plain["repeats"]
    # The same input, as the module's records have it: XXH3 of the same bytes.
    by_name = {key[:3] + key[6:]: checksum for key, checksum in values(tmp_path / "t").items()}
    assert plain["input"] == by_name["plain", "input", "input", 1]
    assert len({n["mask"] for n in found}) == len(found)


@pytest.mark.parametrize("p", ["0.3", "0.2"])
def test_another_probability_is_found_where_dropout_is_off(script, tmp_path, p):
    for folder, of_run in (("reference", "0.3"), ("candidate", p)):
        run_script(script, of_run, out=tmp_path / folder, TTRACE_DROPOUT="off", **ONE_STEP)
    result = compared(tmp_path / "verdict", tmp_path / "reference", tmp_path / "candidate")
    found = [
        (culprit["found_by"], entry["class"], entry["evidence"])
        for culprit in result["culprits"]
        for entry in culprit["classes"]
    ]
    if p == "0.3":
        assert found == []
        return
    assert result["verdict"] == "diverged"
    assert found[0][:2] == (["masks"], "H")
    assert "dropout drops with probability 0.2 where the reference has 0.3" in found[0][2]


def test_ranks_that_seed_alike_draw_one_mask(script, tmp_path):
    for how, equal in (("alike", True), ("apart", False)):
        run_script(script, "0.25", how, processes=2, out=tmp_path / how)
        of_rank = [
            {(n["iteration"], n["fqn"], n["call"]): n["mask"] for n in masks(tmp_path / how, 2)
             if n["rank"] == rank and n["fqn"] == "plain"}
            for rank in range(2)
        ]  # fmt: skip
        assert of_rank[0].keys() == of_rank[1].keys()
        assert len(of_rank[0]) == 2
        assert (of_rank[0] == of_rank[1]) is equal


def test_a_compiled_function_sees_it_off_too():
    from torch import nn

    from ttrace.capture.dropout import Dropout
    from ttrace.capture.session import Session
    from ttrace.capture.settings import Settings

    original = nn.functional.dropout
    x = torch.randn(64)

    def twice(value):
        return nn.functional.dropout(value, 0.5) * 2

    for off, backend in itertools.product((True, False), ("eager", "aot_eager")):
        settings = Settings(out="", dropout_off=off)
        dropout = Dropout(Session(settings), lambda: None, dict)
        compiled = torch.compile(twice, backend=backend, fullgraph=True)
        assert torch.equal(compiled(x), x * 2) is off
        dropout.remove()
        torch._dynamo.reset()
    assert nn.functional.dropout is original


@pytest.mark.parametrize("flags", [["--tp", "2"], ["--tp", "2", "--sp"]], ids=["tp", "sp"])
def test_megatron_masks_of_copies_shards_and_recomputed_layers(tmp_path, flags):
    pytest.importorskip("megatron.core")
    arguments = ["--steps", "1", "--layers", "2", "--dropout", "0.1", "--recompute", *flags]
    run(arguments, processes=2, TTRACE_OUT=tmp_path / "t", **ONE_STEP)
    place = ("iteration", "fqn", "call", "micro_batch")
    found = masks(tmp_path / "t", 2)
    by_rank = [
        {(*(n[k] for k in place), n["pass"]): n for n in found if n["rank"] == rank}
        for rank in range(2)
    ]
    assert by_rank[0].keys() == by_rank[1].keys()
    recomputed = [key for key in by_rank[0] if key[-1] == "recompute"]
    assert len(recomputed) == 2 * 3 * 2  # layers, dropouts in each, micro-batches
    for masks_of, key in itertools.product(by_rank, recomputed):
        assert masks_of[key]["mask"] == masks_of[(*key[:-1], "forward")]["mask"]
    copies = 0
    for key, mine in by_rank[0].items():
        theirs = by_rank[1][key]
        assert (mine["mask"] == theirs["mask"]) is (mine["input"] == theirs["input"]), key
        copies += mine["input"] == theirs["input"]
    assert bool(copies) is ("--sp" not in flags)


def test_megatron_without_dropout_is_what_off_computes(tmp_path):
    pytest.importorskip("megatron.core")
    arguments = ["--steps", "1", "--layers", "2", "--print-state"]
    dropped = [*arguments, "--dropout", "0.1"]
    _, plain = run(dropped)
    run(arguments, TTRACE_OUT=tmp_path / "zero", **ONE_STEP)
    legs = {"TTRACE_LEGS": "replay", "TTRACE_DROPOUT": "off"}
    _, off = run(dropped, TTRACE_OUT=tmp_path / "off", **legs, **ONE_STEP)
    # Modules of dropout are observed only where they do something.
    assert values(tmp_path / "off").items() >= values(tmp_path / "zero").items()
    state = re.compile(r"^state .* random (\w+)$", re.M)
    assert state.findall(off) == state.findall(plain) != []
    # Off in every leg.
    entries = [e for e in index(tmp_path / "off") if e["type"] == "record"]
    outputs = {
        leg: {
            (e["fqn"], e["micro_batch"], e["arg"]): e["xxh3"]
            for e in entries
            if e["leg"] == leg and e["role"] == "output"
        }
        for leg in ("real", "replay")
    }
    assert outputs["real"] == outputs["replay"] != {}
    assert json.dumps(masks(tmp_path / "off"))
