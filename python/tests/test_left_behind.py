"""Nothing of capture is left in the process, whichever way it ends; see census.py."""

import contextlib
import gc
import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import ttrace
from captured_run import ROOT, index
from census import Census
from ttrace.adapters.torch import attach as attach_module
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.store import Store
from ttrace.capture.course import Course
from ttrace.capture.scope import Scope, inside
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.drop(torch.relu(self.norm(self.first(x))))
        return checkpoint(self.last, hidden, use_reentrant=False)


class Loop:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.data = iter(DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4))

    def attach(self, folder, **more):
        return ttrace.attach(self.model, self.optimizer, out=folder, **more)

    def forward(self):
        (x,) = next(self.data)
        return self.model(x).square().mean()

    def step(self, times=1):
        for _ in range(times):
            loss = self.forward()
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    def census(self):
        return Census([self.model], [self.optimizer])


def complete(loop, hold, patch):
    loop.step(2)


def closed_at_once(loop, hold, patch):
    hold.close()


def closed_between_iterations(loop, hold, patch):
    loop.step()
    hold.close()


def closed_within_an_iteration(loop, hold, patch):
    loss = loop.forward()
    hold.close()
    loss.backward()
    loop.optimizer.step()


def closed_twice(loop, hold, patch):
    closed_between_iterations(loop, hold, patch)
    hold.close()


def closed_by_a_hook_of_the_loop(loop, hold, patch):
    handle = loop.model.norm.register_forward_hook(lambda *_: hold.close())
    loop.step()
    handle.remove()


def closed_after_a_backward_that_raised(loop, hold, patch):
    loss = loop.forward()
    gradient = loop.model.last.weight.register_hook(lambda _: 1 / 0)
    with contextlib.suppress(ZeroDivisionError):
        loss.backward()
    gradient.remove()
    hold.close()


def _fails(owner, name, after=0):
    def way(loop, hold, patch):
        original, calls = getattr(owner, name), []

        def failing(*args, **kwargs):
            calls.append(name)
            if len(calls) > after:
                raise RuntimeError("a bug of ours")
            return original(*args, **kwargs)

        patch.setattr(owner, name, failing)
        loop.step(2)
        assert calls, f"{name} was not called"

    way.__name__ = f"failed_in_{name}_after_{after}"
    return way


def refused(loop, hold, patch):
    with patch.context() as also:
        also.setattr(loop.model.first, "__class__", type("PipelineStage", (nn.Linear,), {}))
        loop.step()


def with_a_second_model(loop, hold, patch):
    other = Loop()
    with patch.context() as also:
        also.setenv("TTRACE_OUT", "")
        ttrace.attach(other.model, other.optimizer)
    loop.step(2)


def with_a_hook_behind_ours(loop, hold, patch):
    """The optimizer's: torch must not find its tables changed when it comes to it."""
    seen = []
    handle = loop.optimizer.register_step_post_hook(lambda *_: seen.append("stepped"))
    loop.step(3)
    assert seen == ["stepped"] * 3
    handle.remove()


WAYS = [
    complete,
    closed_at_once,
    closed_between_iterations,
    closed_within_an_iteration,
    closed_twice,
    closed_by_a_hook_of_the_loop,
    closed_after_a_backward_that_raised,
    refused,
    with_a_second_model,
    with_a_hook_behind_ours,
    _fails(LoopSession, "record"),
    _fails(LoopSession, "record", after=12),
    _fails(LoopSession, "start_on"),
    _fails(Course, "backward_done"),
    _fails(Course, "step_begins"),
    _fails(Store, "step_over"),
    _fails(Session, "seal"),
]


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory):
    """What a capture imports is there: it is no trace of a capture."""
    loop = Loop()
    loop.attach(tmp_path_factory.mktemp("first") / "trace")
    loop.step(2)
    with ttrace.record(tmp_path_factory.mktemp("first") / "other"):
        pass
    gc.collect()
    gc.freeze()  # a census looks for garbage: all that torch has is none
    yield
    gc.unfreeze()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_attached_capture_leaves_nothing(tmp_path, monkeypatch, way):
    loop = Loop()
    forks = []
    monkeypatch.setattr(os, "register_at_fork", lambda **handlers: forks.append(handlers))
    before = loop.census()
    hold = loop.attach(tmp_path / "trace")
    assert hold.captures and hold.folder == str(tmp_path / "trace")
    assert before.differences(loop.census()), "this census sees nothing"
    way(loop, hold, monkeypatch)
    monkeypatch.undo()
    assert not hold.captures
    assert before.differences(loop.census()) == []
    assert forks == []


@pytest.mark.parametrize("end", ["complete", "early", "raises", "another loop", "nothing"])
def test_a_recorded_block_leaves_nothing(tmp_path, end):
    loop = Loop()
    before = loop.census()
    with contextlib.suppress(ZeroDivisionError), ttrace.record(tmp_path / "trace"):
        assert before.differences(loop.census()), "this census sees nothing"
        if end != "nothing":
            ttrace.attach(loop.model, loop.optimizer)
            loop.step(2 if end == "complete" else 1)
        if end == "raises":
            _ = 1 / 0
        if end == "another loop":
            other = Loop()
            ttrace.attach(other.model, other.optimizer)
            other.step(2)
    assert before.differences(loop.census()) == []
    if end == "nothing":
        return
    last = index(tmp_path / "trace")[-1]
    assert last["type"] == "end" and last["complete"] is (end == "complete")
    if end == "raises":
        assert "ZeroDivisionError" in last["reason"]


def test_reruns_leave_nothing(tmp_path):
    loop = Loop()
    attach_module.create_folder(str(tmp_path / "trace"))
    before = loop.census()
    legs = "replay", "noise.1"
    with inside(Scope(Settings(out=str(tmp_path / "trace"), legs=legs))):
        hold = ttrace.attach(loop.model, loop.optimizer)
        assert hold.captures
        loop.step(2)
        assert not hold.captures
    assert before.differences(loop.census()) == []
    sealed = [line["leg"] for line in index(tmp_path / "trace") if line["type"] == "seal"]
    assert sorted(sealed) == sorted(["real", *legs] * 2)


def _values(folder):
    """What is recorded, and under which names, without times and places in files."""
    found = [line for line in index(folder) if line["type"] == "record"]
    keys = ("fqn", "role", "arg", "iteration", "call", "micro_batch", "pass", "xxh3")
    return [tuple(line.get(key) for key in keys) for line in found]


def test_captures_may_follow_each_other(tmp_path):
    for name in ("one", "two"):
        loop = Loop()
        loop.attach(tmp_path / name)
        loop.step(3)
    assert len(_values(tmp_path / "one")) > 20
    assert _values(tmp_path / "one") == _values(tmp_path / "two")


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_captures_may_lie_in_each_other(tmp_path, first_to_end):
    """Two loops in turn, each as if it were alone; the one that ends first was attached first or
    last."""
    alone = Loop()
    alone.attach(tmp_path / "alone")
    alone.step(3)
    loops = [Loop(), Loop()]
    before = [loop.census() for loop in loops]
    holds = [loop.attach(tmp_path / str(k)) for k, loop in enumerate(loops)]
    state = torch.get_rng_state()  # each loop has its own numbers
    states = [state, state]
    for turn in range(4):
        for k, loop in enumerate(loops):
            if turn == 0 and k != first_to_end:
                continue
            torch.set_rng_state(states[k])
            loop.step()
            states[k] = torch.get_rng_state()
    assert not any(hold.captures for hold in holds)
    for k, loop in enumerate(loops):
        assert _values(tmp_path / str(k)) == _values(tmp_path / "alone"), k
        assert before[k].differences(loop.census()) == []


def test_a_child_of_fork_captures_nothing(tmp_path):
    alone = Loop()
    alone.attach(tmp_path / "alone")
    alone.step(2)
    loop = Loop()
    hold = loop.attach(tmp_path / "trace")
    loop.step()
    state = torch.get_rng_state()
    child = os.fork()
    if child == 0:
        loop.step(3)
        os._exit(hold.captures)
    assert os.waitpid(child, 0)[1] == 0
    torch.set_rng_state(state)
    loop.step()
    assert _values(tmp_path / "trace") == _values(tmp_path / "alone")


MEGATRON = """
import os, runpy, sys
from ttrace import record
import megatron_cpu
megatron_cpu.enable()
import megatron.core.distributed, megatron.core.optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from census import Census
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29654"}
sys.argv = [sys.argv[1], "--steps", "3", "--layers", "1", "--hidden", "32"]
before = Census(), get_forward_backward_func  # names of modules would be replaced, too
with record("trace", iterations=int(sys.argv.pop())):
    assert get_forward_backward_func is not before[1]
    runpy.run_path(sys.argv[0], run_name="__main__")
assert get_forward_backward_func is before[1]
for line in before[0].differences(Census()):
    if not line.startswith(("tasks", "excepthook")):  # of its process group
        print(line)
"""


@pytest.mark.matrix
@pytest.mark.parametrize("iterations", [2, 5])
def test_megatron_is_left_as_it_was(tmp_path, iterations):
    """Its last iteration is over, or is never made."""
    pytest.importorskip("megatron.core")
    paths = [ROOT / "zoo", ROOT / "python" / "tests", ROOT / "tests"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    script = MEGATRON.replace("sys.argv.pop()", repr(str(iterations)))
    command = [sys.executable, "-c", script, str(ROOT / "zoo" / "train_gpt.py")]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("step", "Rerun"))]
    assert lines == []
    assert index(tmp_path / "trace")[-1]["complete"] is (iterations == 2)


def test_blocks_of_two_threads_lie_beside_each_other(tmp_path):
    found = {}
    barrier = threading.Barrier(2)

    def run(name):
        with ttrace.record(tmp_path / name):
            barrier.wait(60)
            loop = Loop()
            found[name] = ttrace.attach(loop.model, loop.optimizer).folder
            barrier.wait(60)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: str(tmp_path / name) for name in ("one", "two")}


def test_a_block_refuses_what_means_nothing(tmp_path):
    for words in ({"iterations": 0}, {"iterations": "x"}, {"mode": "all"}, {"select": "layer=3"}):
        with pytest.raises(ValueError), ttrace.record(tmp_path / "trace", **words):
            pass
    loop = Loop()
    loop.attach(tmp_path / "trace")
    loop.step(2)
    with pytest.raises(ValueError, match="has a trace already"), ttrace.record(tmp_path / "trace"):
        pass
