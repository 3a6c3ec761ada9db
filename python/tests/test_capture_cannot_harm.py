"""What goes wrong inside capture stays there. Real runs with faults: test_faults.py."""

import random
import sys
import types
from collections import Counter, defaultdict, deque
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest
import torch

from captured_run import HOOK, ROOT, index, run
from ttrace.adapters.megatron import entry_points
from ttrace.capture import free_memory, replay_data
from ttrace.capture.boot import PatchingFinder
from ttrace.capture.free_memory import Peak
from ttrace.capture.scope import Scope
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings
from ttrace.capture.state import GlobalState, Part, Snapshot, Watched, put_back


@pytest.fixture
def session(tmp_path):
    session = Session(Settings(out=str(tmp_path / "trace")))
    session.start(0, 1, [("dp", 1)], [0], {})
    return session


def test_a_part_that_cannot_be_put_back_keeps_no_other_from_it():
    done = []

    def fail():
        raise MemoryError("none left")

    parts = [
        Part("a", lambda: done.append("a")),
        Part("b", fail),
        Part("c", lambda: done.append("c")),
    ]
    assert put_back(parts) == ["b (MemoryError: none left)"]
    assert done == ["a", "c"]


def test_a_snapshot_names_what_it_cannot_put_back():
    module = torch.nn.BatchNorm1d(3)
    module.steps = 1
    snapshot = Snapshot([Watched("norm", module)], [])
    module.running_mean.add_(1)
    module.steps = 2
    module._buffers["running_var"].resize_(5)
    saved = snapshot._buffers[0]["running_var"]
    saved[1].resize_(7)
    failures = snapshot.restore()
    assert len(failures) == 1 and failures[0].startswith("norm.running_var (RuntimeError")
    assert module.steps == 1
    assert module.running_mean.eq(0).all()


def test_generators_stay_and_get_their_states_back():
    """As of Megatron's tracker where graphs are captured: it holds generators, not states."""
    tracker = {"model-parallel": torch.Generator().manual_seed(5)}
    module = torch.nn.Identity()
    module.own = torch.Generator().manual_seed(6)
    module.kept = {"a": torch.Generator().manual_seed(7)}
    mine = tracker["model-parallel"], module.own, module.kept["a"]
    states = [GlobalState("tracker", lambda: dict(tracker), tracker.update)]
    snapshot = Snapshot([Watched("module", module)], states)
    first = [torch.rand(3, generator=generator) for generator in mine]
    after = Snapshot([Watched("module", module)], states)
    assert snapshot.difference(after) == ["module.kept", "module.own", "tracker"]
    tracker["model-parallel"] = torch.Generator()  # a fork may leave another object
    for _ in range(2):
        assert snapshot.restore() == []
        now = tracker["model-parallel"], module.own, module.kept["a"]
        assert all(a is b for a, b in zip(now, mine, strict=True))
        again = [torch.rand(3, generator=generator) for generator in mine]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_what_modules_keep_beside_tensors_is_put_back():
    module = torch.nn.Identity()
    module.rows, module.last = {1}, deque([1], maxlen=2)
    module.counts, module.found = Counter(a=1), defaultdict(list, a=[1])
    module.sums = numpy.zeros(3)
    module.generators = [random.Random(5), numpy.random.RandomState(6), numpy.random.default_rng(7)]
    kept = dict(vars(module))

    def drawn():
        python, old, new = module.generators
        return python.random(), old.rand(), new.random()

    snapshot = Snapshot([Watched("module", module)], [])
    first = drawn()
    module.rows.add(2)
    module.last.extend([2, 3])
    module.counts["a"] += 1
    module.found["a"].append(2)
    module.found["b"].append(3)
    module.sums += 1
    names = ("counts", "found", "generators", "last", "rows", "sums")
    after = Snapshot([Watched("module", module)], [])
    assert snapshot.difference(after) == [f"module.{name}" for name in names]
    for _ in range(2):
        assert snapshot.restore() == []
        assert snapshot.difference(Snapshot([Watched("module", module)], [])) == []
        assert all(vars(module)[name] is kept[name] for name in names)
        assert module.rows == {1} and module.last == deque([1]) and module.last.maxlen == 2
        assert module.counts == Counter(a=1) and module.found == {"a": [1]}
        assert module.sums.sum() == 0
        assert drawn() == first


class TestAround:
    def test_errors_of_ours_do_not_get_out_and_the_call_runs(self, session, capfd):
        @contextmanager
        def broken(when):
            if when == "before":
                raise KeyError("ours")
            yield
            raise KeyError("ours")

        ran = []
        with session.around(lambda: broken("after")):
            ran.append(1)
        assert session.over and "KeyError" in capfd.readouterr().err
        with session.around(lambda: broken("before")):
            ran.append(2)
        assert ran == [1, 2]

    def test_errors_of_the_user_do(self, session):
        left = []

        @contextmanager
        def ours():
            try:
                yield
            finally:
                left.append(True)

        with pytest.raises(ZeroDivisionError), session.around(ours):
            raise ZeroDivisionError
        assert left and not session.over


class TestMessages:
    def test_nothing_continues_while_legs_run(self, session, capfd):
        with session.legs_running():
            session.stop("the disk is full")
            assert capfd.readouterr().err == ""
        assert "capture stopped: the disk is full; training continues" in capfd.readouterr().err

    def test_a_run_that_ends_is_closed_with_the_reason(self, session, capfd, tmp_path):
        session.passes_complete(0)
        session.end("ranks wait for each other")
        assert capfd.readouterr().err == ""
        entries = index(tmp_path / "trace")
        assert [e.get("kind", e["type"]) for e in entries] == ["passes_complete", "stopped", "end"]
        assert entries[-1]["reason"] == "ranks wait for each other"
        assert session.kept() == "The trace has the forward and backward passes of iteration 0."


def test_megatron_goes_on_if_capture_cannot_be_made(monkeypatch, capfd, tmp_path):
    monkeypatch.setitem(sys.modules, "ttrace.adapters.megatron.capture", None)
    patches = {}
    entry_points.register(patches.__setitem__, Scope(Settings(out=str(tmp_path))))
    schedules = types.ModuleType("schedules")
    schedules.get_forward_backward_func = lambda: "schedule"
    patches["megatron.core.pipeline_parallel.schedules"](schedules)
    assert schedules.get_forward_backward_func() == "schedule"
    assert schedules.get_forward_backward_func() == "schedule"
    assert capfd.readouterr().err.count("capture is off") == 1


def test_an_item_that_cannot_be_kept_reaches_the_user(monkeypatch):
    iterator = replay_data.wrap(iter([torch.ones(2), torch.zeros(2)]), lambda k, x: x, keep=True)
    assert next(iterator).sum() == 2

    def no_memory(item):
        raise MemoryError("none left")

    monkeypatch.setattr(replay_data, "clone", no_memory)
    assert next(iterator).sum() == 0
    assert replay_data.lost([None, [iterator]]) == "MemoryError: none left"


class TestMemory:
    SIZE = 1 << 26

    def test_what_the_real_call_took_is_measured(self):
        block = torch.ones(4 * self.SIZE, dtype=torch.uint8)  # before: the mark is high already
        del block
        peak = Peak(torch.device("cpu"))
        block = torch.ones(self.SIZE, dtype=torch.uint8)
        peak.sample(0)
        del block
        assert 0.9 * self.SIZE < peak.above_now() < 1.5 * self.SIZE

    def test_a_new_mark_counts_without_a_sample(self):
        peak = Peak(torch.device("cpu"))
        block = torch.ones(8 * self.SIZE, dtype=torch.uint8)
        del block
        assert peak.above_now() > 7 * self.SIZE

    def test_ranks_of_one_machine_share_it(self, monkeypatch):
        alone = free_memory.free_memory(torch.device("cpu"))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
        shared = free_memory.free_memory(torch.device("cpu"))
        assert 0.5 < 4 * shared / alone < 2


class TestWhoComesFirst:
    def test_names_that_were_copied_are_patched_and_put_back_too(self, monkeypatch, tmp_path):
        def original():
            return "original"

        framework, user = types.ModuleType("framework"), types.ModuleType("user")
        framework.run = user.go = original
        monkeypatch.setitem(sys.modules, "framework", framework)
        monkeypatch.setitem(sys.modules, "user", user)

        def patch(module):
            scope.patches.replace(module, "run", lambda: "patched")

        scope = Scope(Settings(out=str(tmp_path)))
        PatchingFinder(scope).on_import("framework", patch)
        assert framework.run() == user.go() == "patched"
        late = types.ModuleType("late")
        late.run = framework.run
        monkeypatch.setitem(sys.modules, "late", late)
        scope.close()
        assert framework.run() == user.go() == late.run() == "original"

    @pytest.mark.parametrize(
        "place", [pytest.param("sitecustomize", marks=pytest.mark.matrix), "pth"]
    )
    def test_a_framework_that_is_imported_at_start_is_captured(self, tmp_path, place):
        pytest.importorskip("megatron.core")
        line = "from megatron.core.pipeline_parallel import get_forward_backward_func\n"
        path, script = str(tmp_path), "zoo/train_gpt.py"
        if place == "sitecustomize":
            (tmp_path / "sitecustomize.py").write_text(line)
            path = f"{HOOK}:{tmp_path}"
        else:
            # A .pth file is executed before sitecustomize: here the script does both in that order.
            script = str(tmp_path / "script.py")
            Path(script).write_text(
                f"import sys, runpy\nsys.path.insert(0, {str(ROOT / 'zoo')!r})\n{line}"
                f"runpy.run_path({str(HOOK / 'sitecustomize.py')!r})\n"
                f"runpy.run_path({str(ROOT / 'zoo/train_gpt.py')!r}, run_name='__main__')\n"
            )
        out = tmp_path / "trace"
        arguments = ["--steps", "2", "--layers", "1", "--hidden", "32"]
        run(arguments, script=script, TTRACE_OUT=out, TTRACE_ITERATIONS="0:1", PYTHONPATH=path)
        assert any(entry["type"] == "record" for entry in index(out))
