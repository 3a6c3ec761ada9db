"""ttrace.compare, ttrace.check and the fixture of the pytest plugin, on real ranks."""

import contextlib
import functools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ttrace
from ttrace.ranks.calls import Call, NotPortable

pytest_plugins = ("pytester",)


def train(bug="", rows=8):
    """Two steps of a tiny model, with the rows of a batch dealt to the ranks."""
    torch.manual_seed(0)
    world, rank = dist.get_world_size(), dist.get_rank()
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    wrapped = DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    ttrace.attach(wrapped, optimizer)
    numbers = torch.Generator().manual_seed(1)
    for _ in range(2):
        x = torch.randn(rows, 16, generator=numbers)[rank::world]
        y = torch.randn(rows, 8, generator=numbers)[rank::world]
        optimizer.zero_grad()
        unsynced = bug == "no reduction" and world > 1
        with wrapped.no_sync() if unsynced else contextlib.nullcontext():
            (wrapped(x) - y).square().mean().backward()
        if bug == "raises":
            raise RuntimeError("a fault of the function")
        optimizer.step()


def without_reduction():
    train("no reduction")


def raising():
    train("raises")


def idle():
    pass


def leaving_a_child(folder):
    """It has the rank's output open, and its own process group is that of its rank."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    Path(folder, str(child)).touch()


def test_the_same_computation_is_within_and_another_is_placed(tmp_path):
    good = ttrace.compare(train, train, kwargs={"rows": 4}, iterations=1)
    assert good.within and good.verdict == "within", good.text
    assert good.exit_code == 0 and good.compared > 20 and good.unmatched == 0
    assert good.culprits == () and good.folder is None
    bad = ttrace.compare(train, without_reduction, output=tmp_path / "out")
    assert bad.diverged and not bad.within and not bad.inconclusive, bad.text
    first = bad.culprits[0]
    assert (first.role, first.direction, first.stage) == (
        "grad_reduced",
        "backward",
        "communication",
    )
    assert first.iteration == 0 and first.headroom > 1 and "P" in [c.letter for c in first.classes]
    assert bad.folder == tmp_path / "out" and (bad.folder / "index.html").exists()
    assert str(bad) == bad.text and bad.text.startswith("DIVERGED  first at")
    traces = bad.folder / "reference", bad.folder / "candidate"
    again = ttrace.check(*traces)
    assert again.diverged and again.culprits[0].fqn == first.fqn
    assert ttrace.check(traces[0], tmp_path / "nothing").inconclusive


@pytest.mark.parametrize(
    ("function", "words"),
    [(raising, "a fault of the function"), (idle, "nothing to compare")],
)
def test_what_cannot_be_compared_is_inconclusive_and_says_why(function, words):
    found = ttrace.compare(function, train)
    assert found.inconclusive and found.exit_code == 2
    assert words in found.reason and "\n" not in found.reason
    assert words in " ".join(found.text.split())


def wait_until_gone(process):
    status = Path("/proc", str(process), "status")
    until = time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError):
        while "Z (zombie)" not in status.read_text():
            assert time.monotonic() < until, "it is left behind"
            time.sleep(0.05)


def test_a_child_that_a_rank_leaves_ends_with_it(tmp_path):
    assert ttrace.compare(leaving_a_child, leaving_a_child, args=[tmp_path]).inconclusive
    children = list(tmp_path.iterdir())
    assert children
    for child in children:
        wait_until_gone(child.name)


def test_functions_that_ranks_cannot_get_are_refused():
    def local():
        pass

    blocked = {"cloudpickle": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, *blocked.popitem())
        for function in (local, lambda: None):
            with pytest.raises(NotPortable, match="at the top of a module"):
                ttrace.compare(function, train)
    with pytest.raises(NotPortable, match="inside the function"):
        ttrace.compare(train, train, args=[(number for number in range(3))])
    with pytest.raises(ValueError, match="less than 1"):
        ttrace.compare(train, train, ranks=(0, 2))


def test_a_function_is_found_in_the_file_of_its_module():
    call = Call.of(train, (), {}, None)
    assert call.name == "train" and call.module.file == str(Path(__file__).resolve())
    partial = Call.of(functools.partial(train, rows=4), (), {}, None)
    assert partial.name == "" and partial.module == call.module
    method = Call.of(Call.of, (train, (), {}, None), {}, None)
    assert method.name == "Call.of" and method.module.name == "ttrace.ranks.calls"


def test_a_changed_module_is_imported_anew(tmp_path):
    """Also one that a function's own module imports."""
    from ttrace.ranks.calls import ModuleFile
    from ttrace.ranks.kept import KeptServers

    (tmp_path / "imported_by_functions.py").write_text("SCALE = 1\n")
    (tmp_path / "of_functions.py").write_text("import imported_by_functions\n")
    module = ModuleFile("of_functions", str(tmp_path / "of_functions.py"))
    kept = KeptServers()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        server = kept.server([module])
        server.command(Call.of(idle, (), {}, None), 1)
        until = time.monotonic() + 60
        while not server.has_imported:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert kept.server([module]) is server
        (tmp_path / "imported_by_functions.py").write_text("SCALE = 3.0\n")
        assert kept.server([module]) is not server
        assert not server.runs
        kept.end()


def test_ranks_end_with_who_started_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "from ttrace.ranks.kept import KeptServers\n"
        "print(KeptServers().server([]).process, flush=True)\n"
        "os._exit(0)\n"  # no handler of its end runs
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    wait_until_gone(done.stdout.strip())


@pytest.mark.matrix
def test_the_example_of_the_documents_runs(tmp_path):
    document = Path(__file__).parents[2] / "docs" / "python.md"
    example = document.read_text().partition("```python\n")[2].partition("```")[0]
    (tmp_path / "example.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


SUITE = """
from test_compare import train, without_reduction
import pytest

@pytest.mark.ttrace(ranks=(1, 2))
def test_golden(ttrace):
    result = ttrace.golden("ddp", train, {candidate}, iterations=1)
    assert result.within, result.text

def test_name(ttrace):
    with pytest.raises(ValueError, match="no name of a folder"):
        ttrace.golden("../ddp", train, train)
"""


@pytest.mark.matrix
def test_a_golden_is_accepted_kept_and_compared_with(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))

    def run(candidate, *options):
        pytester.makepyfile(test_ddp=SUITE.format(candidate=candidate))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    missing = run("train")
    missing.assert_outcomes(passed=1, failed=1)
    missing.stdout.fnmatch_lines(["*run `pytest --ttrace-update`*"])
    run("train", "--ttrace-update").assert_outcomes(passed=2)
    assert (pytester.path / "ttrace_golden" / "ddp" / "manifest.json").exists()
    bad = run("without_reduction", "--ttrace-report=kept", "--junit-xml=junit.xml")
    bad.assert_outcomes(passed=1, failed=1)
    bad.stdout.fnmatch_lines(["*kept/test_ddp.py_test_golden-*/comparison-0/index.html"])
    assert len(list(pytester.path.glob("kept/*/comparison-0/index.html"))) == 1
    assert (
        '<property name="ttrace_verdict" value="diverged"'
        in (pytester.path / "junit.xml").read_text()
    )
