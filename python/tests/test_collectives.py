"""Collectives are seen where they are called from, once, and nothing of them changes."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import ttrace
from index_lines import read_lines
from launch_ranks import launcher
from ttrace.capture import collective_calls
from ttrace.capture.collectives import CollectiveLog, _Places
from ttrace.capture.iteration import Iteration
from ttrace.capture.patches import Patches

ROOT = Path(__file__).resolve().parents[2]
HOOK = Path(ttrace.__file__).resolve().parent / "hook"

# Each way to name and call a collective, in a process that listens.
CALLS = """
import json, os, sys
from torch.distributed import all_reduce as copied
import torch, torch.distributed as dist
import torch.distributed.nn
import torch.distributed._functional_collectives as functional
from torch.distributed import _coalescing_manager
from ttrace.capture import collective_calls
from ttrace.capture.patches import Patches

dist.init_process_group("gloo")
rank = dist.get_rank()
alone = [dist.new_group([r]) for r in range(2)]
mine, other = alone[rank], alone[1 - rank]
x = torch.ones(6)
halves = [torch.empty(6), torch.empty(6)]
heard, failures = [], []
def listener(calls):
    heard.extend((c.kind, c.op, list(c.members), sum(t.numel() for t in c.tensors)) for c in calls)

def told(function):
    heard.clear()
    result = function()
    if hasattr(result, "wait"):
        result.wait()
    assert not failures, failures
    return list(heard)

def batch():
    peer = 1 - rank
    ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, torch.empty(6), peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()

def exchange():
    (dist.send(x, 1), dist.recv(x, 1)) if rank == 0 else (dist.recv(x, 0), dist.send(x, 0))

def coalesced():
    with _coalescing_manager(dist.group.WORLD, async_ops=False):
        dist.all_reduce(x)
        dist.all_reduce(x)

def differentiable():
    leaf = torch.ones(3, requires_grad=True)
    torch.distributed.nn.all_reduce(leaf).sum().backward()

def quietly():
    with collective_calls.unheard():
        dist.all_reduce(x)

functions = {
    "copied name": lambda: copied(x.clone(), op=dist.ReduceOp.MAX),
    "asynchronous": lambda: dist.all_reduce(x.clone(), async_op=True),
    "of a group": lambda: dist.all_reduce(x.clone(), group=mine),
    "of others": lambda: dist.all_reduce(x.clone(), group=other),
    "operation object": lambda: dist.all_reduce(x.clone(), dist.ReduceOp(dist.ReduceOp.SUM)),
    "gather": lambda: dist.all_gather(halves, x),
    "into tensor": lambda: dist.all_gather_into_tensor(torch.empty(12), x),
    "scatter": lambda: dist.reduce_scatter_tensor(torch.empty(3), x.clone()),
    "to all": lambda: dist.all_to_all_single(torch.empty(6), x),
    "broadcast": lambda: dist.broadcast(x.clone(), 0),
    "objects": lambda: dist.all_gather_object([None, None], "word"),
    "barrier": lambda: dist.barrier(),
    "batch": batch,
    "exchange": exchange,
    "functional": lambda: functional.all_reduce(x.clone(), "sum", dist.group.WORLD),
    "differentiable": differentiable,
    "unheard": quietly,
}
if hasattr(dist.distributed_c10d, "_coalescing_manager"):
    functions["coalesced"] = coalesced
if "--late" in sys.argv:
    collective_calls.patch_late(Patches())
    for name in ("copied name", "coalesced"):
        functions.pop(name)
before = told(lambda: dist.all_reduce(x.clone()))
listening = collective_calls.listen(listener, failures.append)
found = {}
for name, function in functions.items():
    try:
        found[name] = told(function)
    except (RuntimeError, NotImplementedError) as error:
        if "gloo" not in str(error).lower():
            raise
        found[name] = "gloo cannot"
listening.stop()
after = told(lambda: dist.all_reduce(x.clone()))
failing = []
listening = collective_calls.listen(lambda calls: 1 / 0, failing.append)
y = torch.ones(2)
dist.all_reduce(y)
listening.stop()
result = [before, found, after, y.tolist(), [type(e).__name__ for e in failing]]
# A file of its own: ranks that print at the same time mix their lines.
with open(os.path.join(os.path.dirname(__file__), f"rank-{rank}.json"), "w") as out:
    json.dump(result, out)
dist.barrier()
os._exit(0)  # torch sometimes aborts when it takes gloo's threads down at exit
"""


def run_calls(folder: Path, *arguments: str, hook: bool) -> dict[int, list]:
    """What each of two ranks found. With `hook`, torch is patched as it is imported."""
    script = folder / "calls.py"
    script.write_text(CALLS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if hook:
        environment["PYTHONPATH"] = str(HOOK)
        environment["TTRACE_OUT"] = str(folder / "unused")
    command = [*launcher(2), str(script), *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {rank: json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)}


def expected(rank: int) -> dict[str, list]:
    both, pair = [0, 1], [["send", "", [0, 1], 6], ["recv", "", [0, 1], 6]]
    total = ["all_reduce", "sum", both, 6]
    return {
        "copied name": [["all_reduce", "max", both, 6]],
        "asynchronous": [total],
        "of a group": [["all_reduce", "sum", [rank], 6]],
        "of others": [],
        "operation object": [total],
        "gather": [["all_gather", "", both, 6]],
        "into tensor": [["all_gather", "", both, 6]],
        "scatter": [["reduce_scatter", "sum", both, 6]],
        "to all": [["all_to_all", "", both, 6]],
        "broadcast": [["broadcast", "", both, 6]],
        "objects": [["all_gather", "", both, 0]],
        "barrier": [["barrier", "", both, 0]],
        "batch": pair,
        "exchange": pair if rank == 0 else pair[::-1],
        "functional": [total],
        "differentiable": [["all_reduce", "sum", both, 3]] * 2,
        "unheard": [],
        "coalesced": [total, total],
    }


@pytest.mark.parametrize("late", [False, True])
def test_every_way_of_calling_is_heard_once(tmp_path: Path, late: bool) -> None:
    ranks = run_calls(tmp_path, *(["--late"] if late else []), hook=not late)
    for rank, (before, found, after, reduced, failed) in ranks.items():
        assert before == after == [], "nobody listened"
        wanted = expected(rank)
        for name, heard in found.items():
            assert heard in (wanted[name], "gloo cannot"), name
        assert sum(heard == "gloo cannot" for heard in found.values()) <= 3, found
        # What goes wrong in listening is not the caller's problem.
        assert reduced == [2.0, 2.0]
        assert failed == ["ZeroDivisionError"]


def test_wrappers_look_like_what_they_wrap() -> None:
    original, exchanged = dist.all_reduce, dist.isend
    patches = Patches()
    collective_calls.patch_late(patches)
    assert dist.all_reduce.__name__ == "all_reduce" and dist.all_reduce is not original
    assert dist.all_reduce is dist.distributed_c10d.all_reduce
    # torch compares these with copies that somebody may have made.
    assert dist.isend is exchanged
    patches.undo()
    assert dist.all_reduce is dist.distributed_c10d.all_reduce is original


def test_gradients_are_found_by_where_they_lie() -> None:
    buffer = torch.zeros(10)
    places = _Places([("b", buffer[6:9]), ("a", buffer[:6].view(2, 3)), ("none", None)])
    assert places.overlapping(buffer) == ("a", "b")
    assert places.overlapping(buffer[:6]) == ("a",)
    assert places.overlapping(buffer[5:7]) == ("a", "b")
    assert places.overlapping(buffer[6:7]) == ("b",)
    assert places.overlapping(buffer[9:]) == ()
    assert places.overlapping(buffer[:0]) == ()
    assert places.overlapping(torch.zeros(3)) == ()


class _Hooks:
    innermost = None
    last_backward = "layer"

    def begin_iteration(self) -> None:
        self.last_backward = ""


class _Session:
    def __init__(self) -> None:
        self.rank, self.iteration, self.leg, self.recording = 1, 3, "real", True
        self.moment = None
        self.pass_ = "forward"
        self.now = Iteration(3, "real")
        self.settings = self
        self.notes: list[tuple[str, dict]] = []

    def note(self, kind: str, /, **values: object) -> None:
        self.notes.append((kind, values))


@pytest.fixture
def log():
    gradient = torch.zeros(4)
    session = _Session()
    log = CollectiveLog(session, _Hooks(), lambda: [("weight", gradient)], stable=True)
    log.begin()
    log._hooks.last_backward = "layer"
    yield session, log, gradient
    log.stop()


def _say(log: CollectiveLog, tensor: torch.Tensor) -> None:
    log._saw([collective_calls.Call("all_reduce", "sum", (0, 1), (tensor,))])


def test_notes_say_where_a_call_came_from(log) -> None:
    session, log, gradient = log
    activation = torch.zeros(2, dtype=torch.bfloat16)
    _say(log, activation)
    _say(log, gradient)
    with log.inside("reduction", ["of the bucket"]):
        _say(log, activation)
    flat = gradient.clone()
    log.copied([gradient], flat)
    with log.inside("reduction"):
        _say(log, flat)
        _say(log, flat.clone())
    leaf = torch.zeros(1, requires_grad=True)
    leaf.register_hook(lambda _: _say(log, activation))
    leaf.sum().backward()
    session.leg = "replay"
    session.settings = type("", (), {"leg": "real"})
    _say(log, activation)
    log.end()
    kinds = [kind for kind, _ in session.notes]
    assert kinds == ["collective"] * 6 + ["collectives"]
    notes = [values for _, values in session.notes]
    assert [(n["phase"], n["fqn"], n["parameters"]) for n in notes[:-1]] == [
        ("", "", []),
        ("reduction", "", ["weight"]),
        ("reduction", "", ["of the bucket"]),
        ("reduction", "", ["weight"]),
        ("reduction", "", []),
        ("backward", "layer", []),
    ]
    assert [n["order"] for n in notes[:-1]] == list(range(6))
    assert notes[0]["elements"] == 2 and notes[0]["dtype"] == "bfloat16"
    assert notes[-1] == {"iteration": 3, "count": 6}


def test_a_failure_is_said_and_a_list_of_names_is_whole_or_empty(log) -> None:
    session, log, gradient = log
    with log.inside("reduction", ["n" * 1000] * 300):
        _say(log, gradient)
    log._failed(KeyError("group"))
    log.end()
    notes = [values for _, values in session.notes]
    assert notes[0]["parameters"] == []
    assert notes[-1]["failed"] == ["KeyError: 'group'"]


def record(folder: Path, *flags: str, processes: int = 2) -> list[list[dict]]:
    """The `collective` notes of each rank of a run of the zoo's trainer."""
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TTRACE_OUT": str(folder)}
    environment |= {"TTRACE_ITERATIONS": "0:1", "TTRACE_LEGS": "replay"}
    environment["PYTHONPATH"] = str(HOOK)
    command = [*launcher(processes), str(ROOT / "zoo/train_gpt.py"), "--steps", "1"]
    done = subprocess.run(
        [*command, *flags],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ttrace:" not in done.stderr
    ranks = []
    for rank in range(processes):
        notes = read_lines(folder / f"rank-{rank:05d}.r0" / "index.jsonl")
        seen = [n["data"] for n in notes if n.get("kind") == "collective"]
        [total] = [n["data"] for n in notes if n.get("kind") == "collectives"]
        assert total == {"iteration": 0, "count": len(seen)}
        assert [n["order"] for n in seen] == list(range(len(seen)))
        ranks.append(seen)
    return ranks


def count(notes: list[dict], *keys: str) -> Counter:
    return Counter(tuple(note[key] for key in keys) for note in notes)


def test_a_sequence_parallel_run_is_seen_whole(tmp_path: Path) -> None:
    pytest.importorskip("megatron.core")
    flags = ["--tp", "2", "--sp", "--recompute", "--layers", "1", "--global-batch", "2"]
    for notes in record(tmp_path / "trace", *flags):
        places = count(notes, "phase", "kind", "fqn")
        layer = "decoder.layers.0."
        for phase in ("forward", "recompute"):
            assert places[phase, "all_gather", layer + "mlp.linear_fc1"] == 1
            assert places[phase, "reduce_scatter", layer + "mlp.linear_fc2"] == 1
        assert places["backward", "reduce_scatter", layer + "mlp.linear_fc1"] == 1
        assert places["backward", "all_gather", layer + "mlp.linear_fc2"] == 1
        assert places["backward", "reduce_scatter", "output_layer"] == 1
        assert {n["micro_batch"] for n in notes if n["phase"] == "backward"} == {0}
        # The norms' gradients are copied into one tensor, which is reduced over tp.
        reductions = [n for n in notes if n["phase"] == "reduction"]
        [norms] = [n for n in reductions if n["members"] == [0, 1]]
        assert layer + "input_layernorm.weight" in norms["parameters"]
        assert layer + "mlp.linear_fc1.weight" not in norms["parameters"]
        [bucket] = [n for n in reductions if len(n["members"]) == 1]
        assert layer + "mlp.linear_fc1.weight" in bucket["parameters"]
        assert [n["kind"] for n in notes if n["phase"] == "optimizer"] == ["all_reduce"]


def test_a_pipeline_sends_and_ties_its_embedding(tmp_path: Path) -> None:
    pytest.importorskip("megatron.core")
    first, last = record(tmp_path / "trace", "--pp", "2", "--global-batch", "4")
    assert count(first, "kind")["send",] == count(last, "kind")["recv",] == 2
    assert count(first, "kind")["recv",] == count(last, "kind")["send",] == 2
    for notes in (first, last):
        [tied] = [n for n in notes if n["phase"] == "reduction" and n["members"] == [0, 1]]
        assert tied["parameters"] == ["embedding.word_embeddings.weight"]
