"""`ttrace baseline` of a command: a reference is recorded, condensed, and only then in place."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

TTRACE = Path(sys.executable).with_name("ttrace")
RANK = [sys.executable, str(Path(__file__).with_name("tiny_rank.py"))]


def baseline(folder: Path, *flags: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    done = subprocess.run(
        [TTRACE, "baseline", "-o", folder, *options, "--", *RANK, *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def check(reference: Path, candidate: Path) -> int:
    return subprocess.run([TTRACE, "check", reference, candidate], capture_output=True).returncode


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_golden_is_made_replaced_and_kept_where_the_command_fails(tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    code, said = baseline(golden)
    assert code == 0, said
    candidate = tmp_path / "candidate"
    subprocess.run([TTRACE, "record", "-o", candidate, "--", *RANK], capture_output=True)
    assert check(golden, candidate) == 0

    code, said = baseline(golden, "--scale", "2")
    assert code == 2
    assert "--force" in said
    first = files(golden)
    code, said = baseline(golden, "--crash", options=("--force",))
    assert code == 2
    assert "TypeError" in said and "has to be a run that works" in said
    assert files(golden) == first

    code, said = baseline(golden, "--scale", "2", options=("--force", "--iterations", "0:1"))
    assert code == 0, said
    assert check(golden, candidate) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"golden", "candidate"}


def test_an_interrupt_leaves_nothing_but_what_was_there(tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    process = subprocess.Popen(
        [TTRACE, "baseline", "-o", golden, "--", *RANK, "--hang"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    started = tmp_path / "golden.recording" / "rank-00000.r0"
    for _ in range(600):
        if started.exists():
            break
        time.sleep(0.1)
    assert started.exists()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert not list(tmp_path.iterdir())


def test_it_takes_a_trace_or_a_command(tmp_path: Path) -> None:
    for words in ([], ["trace", "--", "true"]):
        done = subprocess.run(
            [TTRACE, "baseline", "-o", tmp_path / "golden", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert done.returncode == 2
        assert "give a trace, or after -- the command" in done.stderr, shlex.join(words)


def test_a_saved_reference_says_which_iterations_are_compared(tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    code, said = baseline(golden, options=("--iterations", "0:1"))
    assert code == 0, said
    words = ["--reference-trace", golden, "--candidate", shlex.join(RANK), "--legs", "replay"]
    done = subprocess.run(
        [TTRACE, "diff", "-o", tmp_path / "a", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "iteration 0;" in done.stdout
    done = subprocess.run(
        [TTRACE, "diff", "-o", tmp_path / "b", "--iterations", "0:2", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "--iterations 0:2: the reference" in done.stderr and "recorded for 0:1" in done.stderr
    assert not (tmp_path / "b").exists()
