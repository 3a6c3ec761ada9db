"""A check in parts as a person or a job launcher runs it: files, exit codes, messages, Ray."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TTRACE = Path(sys.executable).with_name("ttrace")
RANK = [sys.executable, str(Path(__file__).with_name("tiny_rank.py"))]


def ttrace(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [str(TTRACE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with a reference, a candidate that diverges, and one process's result."""
    for name, flags in (("reference", []), ("candidate", ["--scale", "2"])):
        as_reference = ["--as-reference"] if name == "reference" else []
        done = ttrace("record", "-o", tmp_path / name, *as_reference, "--", *RANK, *flags)
        assert done.returncode == 0, said(done)
    done = ttrace("check", "reference", "candidate", "-o", "whole", cwd=tmp_path)
    assert done.returncode == 1, said(done)
    return tmp_path


def part(runs: Path, number: int, of: int, out: str = "parts/") -> str:
    """The command of one part, which is run."""
    words = ["reference", "candidate", "--part", f"{number}/{of}", "--out-part", out]
    done = ttrace("check", *words, cwd=runs)
    assert done.returncode == 0, said(done)
    assert f"part {number}/{of} is measured" in done.stdout
    return shlex.join(["ttrace", "check", *words])


def result(folder: Path) -> str:
    """What a check wrote, but for the one line that is its wall time."""
    lines = (folder / "result.json").read_text().splitlines(keepends=True)
    timed = [line for line in lines if line.startswith('  "seconds": ')]
    assert len(timed) == 1
    json.loads("".join(lines))
    return "".join(line for line in lines if line not in timed)


def test_parts_make_the_bytes_of_one_process(runs: Path) -> None:
    for number in (3, 1, 2):
        part(runs, number, 3)
    done = ttrace("merge", "parts", "-o", "merged", cwd=runs)
    assert done.returncode == 1, said(done)
    assert "DIVERGED" in done.stdout
    assert result(runs / "merged") == result(runs / "whole")
    # Elsewhere than where a part was measured nothing is guessed.
    done = ttrace("merge", runs / "parts", cwd="/")
    assert done.returncode == 2, said(done)
    assert f"which were measured in {runs}" in done.stderr


def test_a_missing_part_comes_with_the_command_that_makes_it(runs: Path) -> None:
    for number in (1, 2):
        part(runs, number, 3)
    (runs / "parts" / "part-00002-of-00003.ttpart").unlink()
    for _ in range(2):
        done = ttrace("merge", "parts", "-o", "merged", "--force", cwd=runs)
        assert done.returncode == 2, said(done)
        assert done.stdout == ""
        assert not (runs / "merged" / "result.json").exists()
        (command,) = [line for line in done.stderr.splitlines() if "--part " in line][:1]
        path = f"{TTRACE.parent}:{os.environ['PATH']}"
        again = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=runs,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert again.returncode == 0, said(again)
    assert ttrace("merge", "parts", "-o", "merged", cwd=runs).returncode == 1
    assert result(runs / "merged") == result(runs / "whole")


def test_a_part_that_fails_says_so_twice(runs: Path) -> None:
    part(runs, 1, 2)
    (runs / "candidate").rename(runs / "away")
    words = ["reference", "candidate", "--part", "2/2", "--out-part", "parts/"]
    done = ttrace("check", *words, cwd=runs)
    assert done.returncode == 2, said(done)
    assert "part 2/2: " in done.stderr
    (runs / "away").rename(runs / "candidate")
    done = ttrace("merge", "parts", cwd=runs)
    assert done.returncode == 2, said(done)
    assert "part 2 of 2 (parts/part-00002-of-00002.ttpart) failed: " in done.stderr
    assert "--part 2/2 --out-part parts/part-00002-of-00002.ttpart" in done.stderr


def test_a_part_that_is_killed_leaves_no_part(runs: Path) -> None:
    """Nothing of it is left under the part's name, whenever it is killed."""
    words = ["reference", "candidate", "--part", "1/2", "--out-part", "parts/"]
    for wait in (0.0, 0.02, 0.05, 0.1):
        running = subprocess.Popen(
            [str(TTRACE), "check", *words], cwd=runs, stdout=subprocess.DEVNULL
        )
        time.sleep(wait)
        running.send_signal(signal.SIGKILL)
        running.wait(timeout=60)
        for path in (runs / "parts").glob("*.ttpart"):
            done = ttrace("merge", path, cwd=runs)
            assert "part 2 of 2 is missing" in done.stderr, said(done)
            assert "part 1 of 2" not in done.stderr, said(done)
            path.unlink()


# Under launchers


def test_parts_by_xargs(runs: Path) -> None:
    command = f"seq 1 4 | xargs -P 2 -I% {shlex.quote(str(TTRACE))} check reference candidate"
    command += " --part %/4 --out-part parts/ --threads 1"
    subprocess.run(["/bin/sh", "-c", command], cwd=runs, check=True, stdout=subprocess.DEVNULL)
    assert ttrace("merge", "parts/", "-o", "merged", cwd=runs).returncode == 1
    assert result(runs / "merged") == result(runs / "whole")


# On Ray


def on_ray(runs: Path, *options: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return ttrace(
        *("check", "reference", "candidate", "--engine", "ray", *options),
        cwd=runs,
        env={**os.environ, **environment},
    )


def test_without_ray_it_is_said_what_to_install(runs: Path) -> None:
    (runs / "broken").mkdir()
    (runs / "broken" / "ray.py").write_text("raise ImportError('not here')\n")
    done = on_ray(runs, PYTHONPATH=str(runs / "broken"))
    assert done.returncode == 2, said(done)
    assert done.stderr == "ttrace: --engine ray needs Ray: pip install 'torch-ttrace[ray]'\n"


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_on_ray(runs: Path, parts: int) -> None:
    pytest.importorskip("ray")
    done = on_ray(runs, "--parts", parts, "-o", "merged")
    assert done.returncode == 1, said(done)
    assert f"measured {parts} of {parts} parts" in done.stderr
    assert result(runs / "merged") == result(runs / "whole")


# Workers import this instead of the compiled module: one that dies where a part is half measured,
# as often as it is told to.
DYING = """
import os, pathlib, signal, sys
sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
del sys.modules["ttrace"]
import ttrace
from ttrace import _native
measure = _native.main
def main(argv):
    if "2/4" in argv:
        left = pathlib.Path(os.environ["LIVES"])
        lives = int(left.read_text())
        if lives:
            left.write_text(str(lives - 1))
            os.kill(os.getpid(), signal.SIGKILL)
    return measure(argv)
_native.main = main
"""


@pytest.mark.parametrize(("deaths", "code"), [(1, 1), (3, 1), (4, 2)])
def test_a_worker_that_is_killed_is_replaced(runs: Path, deaths: int, code: int) -> None:
    pytest.importorskip("ray")
    (runs / "dying" / "ttrace").mkdir(parents=True)
    (runs / "dying" / "ttrace" / "__init__.py").write_text(DYING)
    (runs / "lives").write_text(str(deaths))
    options = {"PYTHONPATH": str(runs / "dying"), "LIVES": str(runs / "lives")}
    done = on_ray(runs, "--parts", 4, "-o", "merged", **options)
    assert done.returncode == code, said(done)
    assert "the worker of part 2 of 4 died; the part is measured again" in done.stderr
    if code == 1:
        assert result(runs / "merged") == result(runs / "whole")
    else:
        assert "part 2 of 4: its worker died 4 times" in done.stderr, said(done)
        assert not (runs / "merged" / "result.json").exists()


def test_a_failure_on_ray_is_that_of_the_part(runs: Path) -> None:
    pytest.importorskip("ray")
    index = runs / "candidate" / "rank-00000.r0" / "index.jsonl"
    index.write_text("{}\n" + index.read_text())
    done = on_ray(runs, "--parts", 2)
    assert done.returncode == 2, said(done)
    assert "part 1 of 2" in done.stderr and "failed: " in done.stderr
    assert "index.jsonl" in done.stderr


def test_a_trace_that_a_worker_does_not_see_is_named(runs: Path) -> None:
    pytest.importorskip("ray")
    shutil.rmtree(runs / "candidate")
    done = on_ray(runs, "--parts", 2)
    assert done.returncode == 2, said(done)
    assert f"the trace folder {runs}/candidate is not there on " in done.stderr


def test_a_cluster_that_is_not_there_is_an_error(runs: Path) -> None:
    pytest.importorskip("ray")
    done = on_ray(runs, "--ray-address", "127.0.0.1:1")
    assert done.returncode == 2, said(done)
    assert "ttrace: no Ray cluster at 127.0.0.1:1: " in done.stderr
