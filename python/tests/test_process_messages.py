"""What a process leaves for `ttrace` where it has no trace: messages.jsonl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ttrace

HOOK = Path(ttrace.__file__).with_name("hook")


def run(folder: Path, code: str) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(HOOK),
        "TTRACE_OUT": str(folder),
        "TTRACE_ITERATIONS": "0:1",
        "RANK": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    messages = folder / "messages.jsonl"
    lines = messages.read_text().splitlines() if messages.exists() else []
    return done, [json.loads(line) for line in lines]


def test_a_process_that_ends_says_what_it_had_imported(tmp_path: Path) -> None:
    done, messages = run(tmp_path, "import json")
    assert done.returncode == 0
    assert [message["kind"] for message in messages] == ["loaded", "ended"]
    assert messages[1]["torch"] is False
    assert messages[1]["framework"] is False
    assert "iterations" not in messages[1], "capture was attached to no loop"


def test_a_loop_that_capture_is_attached_to_says_how_long_it_was(tmp_path: Path) -> None:
    _, messages = run(
        tmp_path, f"from ttrace.capture import process_messages as p; p.ran({str(tmp_path)!r}, 3)"
    )
    assert messages[-1]["iterations"] == 3


def test_an_uncaught_exception_is_left_in_one_line(tmp_path: Path) -> None:
    done, messages = run(tmp_path, "raise ValueError('shapes\\n differ')")
    assert done.returncode == 1
    assert messages[1]["kind"] == "error"
    assert messages[1]["text"] == "ValueError: shapes differ"
    assert messages[1]["rank"] == "3"


def test_of_a_traceback_inside_a_message_the_last_line_counts(tmp_path: Path) -> None:
    """As torch.multiprocessing reports the failure of a process that it started."""
    inner = 'Traceback (most recent call last):\\n  File "x"\\nTypeError: no len()'
    _, messages = run(tmp_path, f"raise RuntimeError('process 1 failed\\n{inner}')")
    assert messages[1]["text"] == "TypeError: no len()"


def test_a_child_of_fork_says_nothing(tmp_path: Path) -> None:
    _, messages = run(tmp_path, "import os, sys; pid = os.fork(); pid and os.waitpid(pid, 0)")
    assert [message["kind"] for message in messages] == ["loaded", "ended"]


def test_a_folder_that_is_gone_disturbs_nobody(tmp_path: Path) -> None:
    done, messages = run(tmp_path / "gone", "print('trained')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    assert messages == []
