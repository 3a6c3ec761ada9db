"""How far a command is: a live line on a terminal, lines in a log, objects for another program."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

TTRACE = Path(sys.executable).with_name("ttrace")
RANK = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('tiny_rank.py')))}"
ERASE = "\r\033[K"
# What a launch takes that pauses for it: long enough for a line, a few legs of it.
SLOW = f"{RANK} --pause 0.15 --iterations 1"
ONE = ("--iterations", "0:1", "--legs", "replay", "--reference-legs", "replay,noise:3")


class Terminal:
    """A command whose standard output and error are a terminal."""

    def __init__(self, *arguments: object, columns: int = 100) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns)
        self.running = subprocess.Popen(
            [str(TTRACE), *map(str, arguments)],
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        )
        os.close(slave)
        self.text = ""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, until: Callable[[str], object] = lambda _: False, seconds: float = 60) -> str:
        """What was printed so far: when `until` holds of it, or when it is all."""
        deadline = time.monotonic() + seconds
        while not until(self.text):
            assert time.monotonic() < deadline, self.text
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(self.master, 65536)
            except OSError:
                piece = b""
            if not piece:
                os.close(self.master)
                self.running.wait(timeout=60)
                break
            self.text += piece.decode(errors="replace")
        return self.text


def shown(text: str) -> list[str]:
    """The lines that a terminal holds in the end, as far as this program's few sequences go."""
    lines = [""]
    for part in re.split(r"(\r\033\[[KJ]|\r?\n)", text):
        if part.startswith("\r\033["):
            lines[-1] = ""
        elif part.endswith("\n"):
            lines.append("")
        else:
            assert "\033" not in part and "\r" not in part, repr(part)
            lines[-1] += part
    return lines


def live(text: str) -> list[str]:
    """Each state of the live line."""
    parts = re.split(r"\r\033\[[KJ]", text)[1:]
    return [part for part in parts if part and "\n" not in part]


def diff(folder: Path, reference: str, candidate: str, *options: object) -> list[object]:
    return ["diff", "-o", folder, "--reference", reference, "--candidate", candidate, *options]


def test_on_a_terminal_each_side_has_a_line_that_goes_away(tmp_path: Path) -> None:
    terminal = Terminal(*diff(tmp_path / "d", SLOW, SLOW, *ONE, "--no-first-step"), columns=70)
    text = terminal.read()
    assert terminal.running.returncode == 0, text
    states = live(text)
    for side in ("reference", "candidate"):
        assert any(
            re.match(rf"{side}: iteration 0, leg \S+, \d+ steps?, \d+ s, \S+ B", s) for s in states
        ), states
    assert all(len(state) < 70 for state in states), states
    # What is said in between stands on lines of its own, and nothing is left of the live line.
    last = shown(text)
    assert not any(re.search(r"iteration 0, leg|waiting for the first", line) for line in last)
    for whole in ("plan: reference: ", "reference: .*1 iteration captured", "candidate: .*1 iter"):
        assert any(re.match(whole, line) for line in last), last
    assert not any("capture began" in line for line in last), "the live line says it"


def test_the_live_line_follows_the_terminals_width(tmp_path: Path) -> None:
    command = f"{RANK} --pause 0.4 --iterations 1"
    terminal = Terminal(*diff(tmp_path / "d", command, command, *ONE), columns=100)
    terminal.read(until=lambda text: "records" in text)
    terminal.resize(30)
    before = len(terminal.text)
    text = terminal.read(until=lambda text: len(live(text[before:])) > 4)
    # The one under way when the width changed is as wide as it was; the last may be a line that
    # is said, whose end has not come yet.
    assert all(len(state) < 30 for state in live(text[before:])[2:-1]), text
    assert "\r\033[J" in text[before:], "what had come to lie on several lines is erased"
    terminal.running.send_signal(signal.SIGINT)
    terminal.read()
    assert terminal.running.returncode == 130


def test_an_interrupt_leaves_the_terminal_clean(tmp_path: Path) -> None:
    command = f"{RANK} --hang"
    terminal = Terminal(*diff(tmp_path / "d", command, command, "--no-first-step"))
    terminal.read(until=lambda text: "reference: iteration 1" in text)
    terminal.running.send_signal(signal.SIGINT)
    text = terminal.read()
    assert terminal.running.returncode == 130
    last = shown(text)
    assert last[-1] == "", last
    assert last[-2].startswith("ttrace: interrupted"), last


def test_what_is_said_meanwhile_does_not_tear_the_live_line(tmp_path: Path) -> None:
    command = f"{RANK} --pause 0.4 --iterations 1 --say-cost"
    options = (*ONE, "--no-first-step", "--stall-notice", "0.1")
    terminal = Terminal(*diff(tmp_path / "d", command, command, *options), columns=120)
    text = terminal.read()
    assert terminal.running.returncode == 0, text
    last = shown(text)
    for whole in (
        "reference: 96 B an iteration on 1 rank, with 4 reruns",
        "ttrace: reference: no rank ",
    ):
        assert any(line.startswith(whole) for line in last), last
    # What there is to come is known from then on, and how long it takes once a rerun was seen.
    states = live(text)
    assert any("2 of 5 steps, about" in state for state in states), states
    assert not any("1 of 5 steps, about" in state for state in states), states


def test_a_recorded_command_has_the_terminal_for_itself(tmp_path: Path) -> None:
    command = shlex.split(f"{SLOW} --iterations 2")
    terminal = Terminal("record", "-o", tmp_path / "t", "--iterations", "0:2", "--", *command)
    text = terminal.read()
    assert terminal.running.returncode == 0
    assert "\033" not in text
    assert "iteration 1 done" in text.splitlines()


def test_quiet_says_the_report_and_nothing_else(tmp_path: Path) -> None:
    done = run(*diff(tmp_path / "d", RANK, RANK, "--quiet"))
    assert done.returncode == 0, done
    assert done.stderr == ""
    assert done.stdout.startswith("BITWISE EQUAL"), done.stdout
    terminal = Terminal(*diff(tmp_path / "e", RANK, RANK, "-q"))
    assert "\033" not in terminal.read()
    checked = run("check", tmp_path / "d" / "reference", tmp_path / "d" / "candidate", "-q")
    assert (checked.stderr, checked.returncode) == ("", 0)
    recorded = run("record", "-q", "-o", tmp_path / "t", "--", *shlex.split(RANK))
    assert recorded.stderr == ""
    failed = run(*diff(tmp_path / "f", f"{RANK} --crash-first", RANK, "-q", "--no-first-step"))
    assert failed.returncode == 2
    assert "ttrace: reference: the command exited with code 1" in failed.stderr


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TTRACE), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_a_program_reads_objects(tmp_path: Path) -> None:
    command = f"{RANK} --pause 0.5 --iterations 1"
    done = run(*diff(tmp_path / "d", command, command, *ONE, "--json-progress"))
    assert done.returncode == 0, done
    assert done.stdout.startswith("BITWISE EQUAL"), "the report alone is on standard output"
    objects = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(one["progress"] == 1 for one in objects)
    began = [(one["side"], one["phase"]) for one in objects if one["event"] == "begin"]
    assert began == [
        ("candidate", "first_step"),
        ("reference", "record"),
        ("candidate", "record"),
        (None, "compare"),
    ]
    ends = {(one["side"], one["phase"]): one for one in objects if one["event"] == "end"}
    assert list(ends) == began
    # real, replay and three of noise; of three tensors each.
    reference = ends["reference", "record"]
    assert (reference["steps"], reference["records"]) == (5, 15)
    assert (reference["ranks"], reference["ranks_done"]) == (1, 1)
    assert reference["bytes"] == 15 * 8 * 4
    compared = ends[None, "compare"]
    assert compared["tensors"] == compared["tensors_total"] == 3
    assert compared["done"] == 1
    assert (
        compared["bytes"]
        == json.loads((tmp_path / "d" / "result.json").read_text())["bytes_compared"]
    )
    meanwhile = [one for one in objects if one["event"] == "progress" and one["phase"] == "record"]
    legs = {one["leg"] for one in meanwhile} - {None}
    assert legs and legs <= {"real", "replay", "noise.1", "noise.2", "noise.3"}, meanwhile


def test_launches_of_single_legs_are_counted_and_timed(tmp_path: Path) -> None:
    command = f"{RANK} --replayer none --pause 1.1 --iterations 1"
    two = ("--iterations", "0:1", "--legs", "none", "--reference-legs", "replay,noise:1")
    done = run(*diff(tmp_path / "d", command, RANK, *two, "--json-progress", "--no-first-step"))
    objects = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    legs = [one for one in objects if one["phase"] == "leg" and one["event"] == "progress"]
    assert {(one["launch"], one["launches"]) for one in legs} == {(1, 2), (2, 2)}
    assert all((one["seconds_left"] is None) == (one["launch"] == 1) for one in legs), legs


def test_an_interrupt_ends_a_check(tmp_path: Path) -> None:
    """Also that of the console script, where Python has a handler of its own."""
    # A trace that takes seconds to open.
    done = run("record", "-o", tmp_path / "t", "--as-reference", "--", *shlex.split(RANK))
    assert done.returncode == 0, done
    rank = tmp_path / "t" / "rank-00000.r0"
    chain = re.compile(r',"chain":"[0-9a-f]{16}"')
    index = chain.sub("", (rank / "index.jsonl").read_text()).splitlines(keepends=True)
    note = '{"type":"note","kind":"remark","data":{}}\n'
    meta = json.loads((rank / "meta.json").read_text())
    del meta["chained"]
    (rank / "meta.json").write_text(json.dumps(meta))
    (rank / "index.jsonl").write_text("".join([*index[:-1], note * 1_000_000, index[-1]]))
    terminal = Terminal("check", tmp_path / "t", tmp_path / "t")
    terminal.read(until=lambda text: "reading what the traces hold" in text)
    terminal.running.send_signal(signal.SIGINT)
    text = terminal.read()
    assert terminal.running.returncode == -signal.SIGINT, text
    assert "KeyboardInterrupt" not in text, "Python had it at the end alone"
    assert shown(text)[-1].replace("^C", "") == "", text
