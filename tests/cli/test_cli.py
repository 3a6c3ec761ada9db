"""The command `ttrace` as a person meets it: help, mistakes, failing commands, interrupts."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch_ranks import launcher

ROOT = Path(__file__).resolve().parent.parent.parent
TTRACE = Path(sys.executable).with_name("ttrace")
RANK = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('tiny_rank.py')))}"
COMMANDS = (
    "diff",
    "record",
    "check",
    "run",
    "baseline",
    "merge",
    "report",
    "inspect",
    "completion",
    "doctor",
    "version",
)


def ttrace(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TTRACE), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"


def record(folder: Path, *flags: str, options: tuple[str, ...] = ()) -> None:
    done = ttrace("record", "-o", folder, *options, "--", *shlex.split(RANK), *flags)
    assert done.returncode == 0, said(done)


def processes_with(marker: str) -> list[int]:
    """Live processes that have `marker` on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker in (entry / "cmdline").read_text(errors="replace"):
                    found.append(int(entry.name))
            except OSError:
                pass  # it ended while we looked
    return found


# Help


def test_the_instruction_set_is_said_and_can_be_limited() -> None:
    known = ttrace("version").stdout
    environment = {**os.environ, "TTRACE_INSTRUCTION_SET": "MMX"}
    refused = ttrace("version", env=environment)
    assert refused.returncode == 2, said(refused)
    best, *_, last = re.findall(r"but (.+)\n", refused.stderr)[0].split(", ")
    assert f", {best})" in known
    assert f"({best})" in ttrace("--version").stdout
    environment["TTRACE_INSTRUCTION_SET"] = last
    assert f", {last})" in ttrace("version", env=environment).stdout


def test_help_is_there_for_every_command() -> None:
    top = ttrace("--help")
    assert top.returncode == 0
    for command in COMMANDS:
        assert command in top.stdout
        done = ttrace(command, "--help")
        assert done.returncode == 0, said(done)
        assert "Examples:" in done.stdout
        assert "Exit codes:" in done.stdout or command == "version"
        if command in ("diff", "record"):
            assert "--timeout" in done.stdout


def test_help_examples_run(tmp_path: Path) -> None:
    """Each line under "Examples:" is run as it stands, in the order in which one would use them."""
    # What the examples call train.py trains on real megatron-core; the topology flags of the
    # examples would need torchrun, and the same training is as good a candidate.
    (tmp_path / "train.py").write_text(
        "import runpy, sys\n"
        f"sys.path.insert(0, {str(ROOT / 'zoo')!r})\n"
        "sys.argv = ['train_gpt.py', '--layers', '1']\n"
        f"TRAIN = {str(ROOT / 'zoo' / 'train_gpt.py')!r}\n"
        "if __name__ == '__main__':\n"
        "    runpy.run_path(TRAIN, run_name='__main__')\n"
        "else:\n"
        "    runpy.run_path(TRAIN)\n"
    )
    (tmp_path / "ttrace.toml").write_text(
        "[experiments.tp]\n"
        'reference = "python train.py"\n'
        'candidates.tp2 = "python train.py --tp 2"\n'
        'reference-legs = "replay,noise:2"\n'
        'legs = "none"\n'
        "no-first-step = true\n"
    )
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {shlex.join(launcher(0))} "$@"\n')
    python.chmod(0o755)
    examples: list[str] = []
    for command in COMMANDS:
        text = ttrace(command, "--help").stdout.split("Examples:")[1]
        examples += [line.strip() for line in text.splitlines() if line.startswith("  ttrace")]
    assert len(examples) >= 12
    order = {
        "version": 0,
        "record": 1,
        "diff": 2,
        "baseline": 3,
        "check": 4,
        "merge": 5,
        "report": 6,
        "inspect": 7,
        "run": 8,
        "completion": 9,
        "doctor": 10,
    }
    path = f"{python.parent}:{TTRACE.parent}:{os.environ['PATH']}"
    for example in sorted(examples, key=lambda line: order[line.split()[1]]):
        done = subprocess.run(
            # A file that GitHub names in the environment, which ranks would start anew for.
            ["/bin/sh", "-c", example.replace('"$GITHUB_STEP_SUMMARY"', "summary.md")],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
        )
        # Checked alone, a candidate may be beyond a verdict.
        alone = example == "ttrace check candidate"
        assert done.returncode in ((0, 2) if alone else (0,)), f"{example}\n{said(done)}"
        assert "internal error" not in done.stderr


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["dif"], "did you mean diff?"),
        (["diff", "-o", "x", "--candidate", "a", "--itreations", "0:2"], "did you mean --iter"),
        (["record", "-o", "x", "python", "train.py"], "put -- before the command"),
        (["record", "-o", "x", "--"], "no command to record"),
        (["record", "--", "true"], "--output is required"),
        (["diff", "-o", "x", "--candidate", "true"], "--reference-trace DIR"),
        (["diff", "-o", "x", "--reference", "a", "--candidate", "b", "c"], "quote each command"),
        (["record", "-o", "x", "--legs", "noice", "--", "true"], "unknown leg 'noice'"),
        (["record", "-o", "x", "--legs", "isolatd", "--", "true"], "unknown leg"),
        (["record", "-o", "x", "--iterations", "2:2", "--", "true"], "FIRST:END"),
        (["record", "-o", "x", "--select", "layer=1", "--", "true"], "KEY=PATTERN"),
        (["record", "-o", "x", "--graft", "nowhere", "--", "true"], "nowhere"),
        (["record", "-o", "x", "--graft-what", "all", "--", "true"], "cannot graft 'all'"),
        (["record", "-o", "x", "--timeout", "soon", "--", "true"], "--timeout: 'soon' is no"),
        (["record", "-o", "x", "--stall-notice", "-1", "--", "true"], "--stall-notice: "),
        (["check", "nowhere"], "nowhere"),
        (["check", "a", "--", "b"], "only `ttrace record` and `ttrace baseline` take a command"),
        (["check", "a", "b", "--part", "1/2"], "takes both --part I/N and --out-part"),
        (["check", "a", "b", "--out-part", "p"], "takes both --part I/N and --out-part"),
        (["check", "a", "b", "--part", "3/2", "--out-part", "p"], "'3/2' is no part"),
        (
            ["check", "a", "b", "--part", "1/2", "--out-part", "p", "-o", "x"],
            "give -o to `ttrace m",
        ),
        (["check", "a", "b", "--parts", "2"], "--parts is for --engine ray"),
        (["check", "a", "b", "--ray-address", "x"], "--ray-address is for --engine ray"),
        (["check", "a", "b", "--engine", "dask"], "--engine"),
        (
            ["check", "a", "b", "--engine", "ray", "--part", "1/2", "--out-part", "p"],
            "leave out --part",
        ),
        (["merge"], "PART is required"),
        (["merge", "nowhere"], "nowhere"),
        (["report", "nowhere"], "give --html, --junit, --sarif, --markdown or --perfetto"),
        (["report", "nowhere", "--html", "-"], "nowhere"),
        (["report", "a", "b", "--html", "-", "--junit", "-"], "are of one result"),
        (["inspect", "nowhere"], "nowhere"),
        ([], "Usage"),
    ],
)
def test_mistakes_exit_with_2_and_a_hint(arguments: list[str], hint: str, tmp_path: Path) -> None:
    done = ttrace(*arguments, cwd=tmp_path)
    assert done.returncode == 2, said(done)
    assert hint in done.stderr, said(done)
    assert list(tmp_path.iterdir()) == [], "a mistake leaves nothing behind"


# Recording


def test_record_passes_exit_code_and_output_through(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "echo to stdout; echo to stderr >&2; cat; exit 5"]
    done = ttrace("record", "-o", tmp_path / "t", "--", *command, input="typed\n")
    assert done.returncode == 5
    assert done.stdout == "to stdout\ntyped\n"
    assert done.stderr.startswith("to stderr\n")


def test_record_reports_a_signal_as_a_shell_does(tmp_path: Path) -> None:
    done = ttrace("record", "-o", tmp_path / "t", "--", "/bin/sh", "-c", "kill -ABRT $$")
    assert done.returncode == 128 + signal.SIGABRT
    assert "SIGABRT" in done.stderr


def test_record_of_nothing_is_explained_and_not_a_success(tmp_path: Path) -> None:
    done = ttrace("record", "-o", tmp_path / "t", "--", sys.executable, "-I", "-c", "pass")
    assert done.returncode == 2, said(done)
    assert "PYTHONPATH" in done.stderr
    assert "python -I" in done.stderr


def test_record_refuses_a_folder_with_content(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = ttrace("record", "-o", tmp_path, "--", "true")
    assert done.returncode == 2
    assert "--force" in done.stderr
    done = ttrace("record", "--force", "-o", tmp_path, "--", "true")
    assert done.returncode == 2
    assert "not something that ttrace wrote" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_record_with_force_replaces_a_trace(tmp_path: Path) -> None:
    record(tmp_path / "t")
    record(tmp_path / "t", options=("--force",))
    assert (tmp_path / "t" / "rank-00000.r0").is_dir()
    assert not (tmp_path / "t" / "rank-00000.r1").exists()


def test_a_relative_folder_reaches_ranks_in_another_folder(tmp_path: Path) -> None:
    inner = f"cd / && exec {RANK}"
    done = ttrace("record", "-o", "t", "--", "/bin/sh", "-c", inner, cwd=tmp_path)
    assert done.returncode == 0, said(done)
    assert (tmp_path / "t" / "rank-00000.r0" / "index.jsonl").exists()


# Diffing


def diff(folder: Path, reference: str, candidate: str, *options: str):
    return ttrace(
        "diff", "-o", folder, "--reference", reference, "--candidate", candidate, *options
    )


def test_diff_says_what_it_does_first_and_fills_its_folder(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", RANK, f"{RANK} --sleep")
    assert done.returncode == 0, said(done)
    first = done.stdout.splitlines()[0]
    assert "weights and data" in first
    assert "ends each command" in first
    assert re.search(r"candidate: all 2 iterations captured after .*--run-to-end", done.stdout)
    assert {path.name for path in (tmp_path / "d").iterdir()} == {
        "reference",
        "candidate",
        "reference.log",
        "candidate.log",
        "result.json",
        "report.txt",
        "index.html",
    }
    assert "ran to its end" not in (tmp_path / "d" / "candidate.log").read_text()
    again = ttrace("report", tmp_path / "d", "--html", "-")
    assert again.stdout == (tmp_path / "d" / "index.html").read_text()
    result = json.loads((tmp_path / "d" / "result.json").read_text())
    assert result["verdict"] in ("within", "bitwise_equal")


def test_diff_finds_a_difference(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", RANK, f"{RANK} --scale 2")
    assert done.returncode == 1, said(done)
    assert "DIVERGED" in done.stdout
    again = ttrace("check", tmp_path / "d" / "reference", tmp_path / "d" / "candidate")
    assert again.returncode == 1, said(again)


def test_check_judges_only_the_iterations_asked_for(tmp_path: Path) -> None:
    record(tmp_path / "ref", options=("--as-reference",))
    record(tmp_path / "cand")
    check = ("check", tmp_path / "ref", tmp_path / "cand", "-o", tmp_path / "verdict", "--force")
    for words, judged in (((), [0, 1]), (("--iterations", "1:2"), [1])):
        done = ttrace(*check, *words)
        assert done.returncode == 0, said(done)
        result = json.loads((tmp_path / "verdict" / "result.json").read_text())
        assert result["iterations"] == judged
    missing = ttrace(*check, "--iterations", "5:9")
    assert missing.returncode == 2
    assert "no iteration of 5:9" in missing.stderr
    assert ttrace(*check, "--iterations", "2:1").returncode == 2


def test_diff_from_a_saved_reference(tmp_path: Path) -> None:
    record(tmp_path / "ref", options=("--as-reference",))
    done = ttrace(
        "diff", "-o", tmp_path / "d", "--reference-trace", tmp_path / "ref", "--candidate", RANK
    )
    assert done.returncode == 0, said(done)
    assert not (tmp_path / "d" / "reference").exists()


def test_diff_keeps_only_the_report_if_asked(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", RANK, RANK, "--keep", "report")
    assert done.returncode == 0, said(done)
    assert not (tmp_path / "d" / "candidate").exists()
    assert (tmp_path / "d" / "result.json").exists()


def test_diff_launches_once_per_leg_where_nothing_can_be_replayed(tmp_path: Path) -> None:
    command = f"{RANK} --replayer none"
    done = diff(tmp_path / "d", command, command)
    assert done.returncode == 0, said(done)
    legs = {path.name for path in (tmp_path / "d" / "reference" / "legs").iterdir()}
    assert {"replay", "noise.1", "noise.3", "fp32"} <= legs
    shown = ttrace("inspect", tmp_path / "d" / "reference" / "legs" / "noise.1")
    assert "noise.1" in shown.stdout


def test_what_the_candidates_first_step_shows_is_said_before_the_reference_runs(
    tmp_path: Path,
) -> None:
    ran = f"touch {tmp_path / 'ran'}; {RANK}"
    # It trains on: the launch ends with the first step.
    done = diff(tmp_path / "d", ran, f"{RANK} --refuse --sleep")
    assert done.returncode == 2, said(done)
    assert "first step: rank 0: a wheel of glass is not supported: it breaks; take steel" in (
        done.stderr
    ), said(done)
    assert "plan: first the candidate's own first step alone, one launch" in done.stdout
    assert not (tmp_path / "ran").exists(), said(done)
    # What is refused by the first step is open without it too, after one launch of each side.
    command = f"{RANK} --replayer none"
    done = diff(tmp_path / "late", command, f"{command} --refuse", "--no-first-step")
    assert done.returncode == 2, said(done)
    assert "candidate: rank 0: a wheel of glass is not supported" in done.stderr, said(done)
    assert "INCONCLUSIVE" in done.stdout, said(done)
    assert not (tmp_path / "late" / "candidate" / "legs").exists(), "reruns for nothing"
    assert not (tmp_path / "late" / "first_step").exists()


def test_a_reference_that_cannot_be_judged_is_not_run_again(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", f"{RANK} --replayer none --refuse", RANK)
    assert done.returncode == 2, said(done)
    assert "reference: rank 0: a wheel of glass is not supported" in done.stderr, said(done)
    assert not (tmp_path / "d" / "reference" / "legs").exists()
    assert not (tmp_path / "d" / "candidate").exists()


def undecided(folder: Path) -> str:
    """The reason in the result of a diff that decided nothing."""
    result = json.loads((folder / "result.json").read_text())
    assert (result["verdict"], result["exit_code"]) == ("inconclusive", 2)
    assert "INCONCLUSIVE" in (folder / "report.txt").read_text()
    assert "INCONCLUSIVE" in (folder / "index.html").read_text().upper()
    return result["reason"]


def test_a_candidate_that_fails_by_itself_does_so_before_the_reference_runs(tmp_path: Path) -> None:
    ran = f"touch {tmp_path / 'ran'}; {RANK}"
    done = diff(tmp_path / "d", ran, f"{RANK} --crash-first")
    assert done.returncode == 2, said(done)
    assert "first step: the command exited with code 1: TypeError" in done.stderr, said(done)
    assert not (tmp_path / "ran").exists()
    assert undecided(tmp_path / "d").startswith("first step: the command exited with code 1: Type")
    assert diff(tmp_path / "d", RANK, RANK, "--force").returncode == 0, "its leavings are ours"


@pytest.mark.parametrize("verb", ["diff", "record"])
def test_a_crash_on_replaced_data_is_blamed_on_them_first(tmp_path: Path, verb: str) -> None:
    record(tmp_path / "ref", options=("--as-reference",))
    if verb == "diff":
        done = diff(tmp_path / "d", RANK, f"{RANK} --crash-grafted")
        option = "--graft weights"
    else:
        graft = ("--graft", tmp_path / "ref")
        command = (*shlex.split(RANK), "--crash-grafted")
        done = ttrace("record", "-o", tmp_path / "t", *graft, "--", *command)
        option = "--graft-what weights"
    assert done.returncode == (2 if verb == "diff" else 1), said(done)
    words = "it ran with the reference's weights and data in place of its own"
    ended = "the command exited with code 1: TypeError: int() argument"
    assert done.stderr.index(words) < done.stderr.index(ended), said(done)
    assert option in done.stderr, said(done)
    own = "with weights and data of its own, its first step ran"
    assert (own in done.stderr) == (verb == "diff"), said(done)
    if verb == "diff":  # the way out is cheaper than this try was
        again = re.search(
            r"ttrace diff -o NEW --reference-trace (\S+) --candidate CMD", done.stdout
        )
        assert again and Path(again[1]).exists(), said(done)


def test_a_crash_on_data_of_its_own_is_blamed_on_nothing_else(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", RANK, f"{RANK} --crash")
    assert done.returncode == 2, said(done)
    assert "the process ended before iteration 1 was complete" in undecided(tmp_path / "d")
    assert "in place of its own" not in done.stderr, said(done)


def test_every_verdict_says_how_the_next_try_keeps_the_reference(tmp_path: Path) -> None:
    words = f"ttrace diff -o NEW --reference-trace {tmp_path / 'd' / 'reference'} --candidate CMD"
    for candidate, code in ((RANK, 0), (f"{RANK} --scale 2", 1)):
        done = diff(tmp_path / "d", RANK, candidate, "--force")
        assert done.returncode == code, said(done)
        assert done.stdout.count(words) == 1, said(done)
    folder = tmp_path / "d"  # of the diff, not the trace in it
    again = ("-o", tmp_path / "n", "--reference-trace", folder, "--candidate", RANK)
    done = ttrace("diff", *again)
    assert done.returncode == 2 and f"is {folder}/reference" in done.stderr, said(done)
    done = diff(tmp_path / "d", RANK, RANK, "--force", "--keep", "report")
    assert words not in done.stdout, "it is not kept"


def test_a_failing_command_shows_the_end_of_its_log(tmp_path: Path) -> None:
    lines = "for i in $(seq 1 50); do echo line $i; done; printf 'Boom \\033[31m\\n' >&2; exit 3"
    done = diff(tmp_path / "d", lines, RANK, "--junit", tmp_path / "j.xml")
    assert done.returncode == 2
    assert "reference: the command exited with code 3" in done.stderr
    assert "| line 50" in done.stderr
    assert "| line 20\n" not in done.stderr
    assert "Boom" in done.stderr
    assert "\033" not in done.stderr, "a log may not act on the terminal"
    assert not (tmp_path / "d" / "candidate.log").exists(), "nothing to compare with"
    assert undecided(tmp_path / "d").startswith("reference: the command exited with code 3")
    assert 'error type="inconclusive"' in (tmp_path / "j.xml").read_text()


def test_no_older_verdict_stays_behind_one_that_was_not_reached(tmp_path: Path) -> None:
    junit = ("--junit", tmp_path / "j.xml")
    assert diff(tmp_path / "d", RANK, RANK, *junit).returncode == 0
    assert diff(tmp_path / "d", RANK, f"python {tmp_path / 'gone.py'}", *junit).returncode == 2
    assert json.loads((tmp_path / "d" / "result.json").read_text())["verdict"] != "inconclusive"
    done = diff(tmp_path / "d", RANK, f"python {tmp_path / 'gone.py'}", "--force", *junit)
    assert done.returncode == 2, said(done)
    assert "there is no script" in undecided(tmp_path / "d")
    assert 'error type="inconclusive"' in (tmp_path / "j.xml").read_text()


def test_a_command_that_does_not_exist_is_called_so(tmp_path: Path) -> None:
    """Of either side before anything runs; a shell's command is simply run."""
    gone = tmp_path / "gone.py"
    for reference, candidate, words in (
        ("no-such-program", RANK, "reference: there is no program 'no-such-program' in PATH"),
        (RANK, "pythn train.py", "candidate: there is no program 'pythn' in PATH; did you mean"),
        (RANK, f"python {gone}", f"candidate: there is no script '{gone}'"),
    ):
        done = diff(tmp_path / "d", reference, candidate)
        assert done.returncode == 2
        assert words in done.stderr, said(done)
        assert not (tmp_path / "d").exists(), "nothing was run"
    done = diff(tmp_path / "d", "no-such-program && true", RANK)
    assert done.returncode == 2
    assert "command not found" in done.stderr, said(done)


def test_a_candidate_that_breaks_down_is_never_a_pass(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", RANK, f"{RANK} --iterations 1 --fail-after")
    assert done.returncode == 2, said(done)
    assert "only 1 of the 2 iterations" in done.stderr


# Commands that fail, hang or fill the disk


def test_a_crash_is_named_first_and_without_guesses(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", f"{RANK} --crash", RANK)
    assert done.returncode == 2, said(done)
    first = done.stderr.index("TypeError: int() argument")
    assert "reference: the command exited with code 1: TypeError" in done.stderr
    assert first < done.stderr.index("only 1 of the 2"), said(done)
    for guess in ("PYTHONPATH", "was ended after its capture", "ttrace.attach"):
        assert guess not in done.stderr, said(done)


@pytest.mark.parametrize("verb", ["diff", "record"])
def test_a_crash_before_training_is_named_too(tmp_path: Path, verb: str) -> None:
    command = f"{RANK} --crash-first"
    if verb == "diff":
        done = diff(tmp_path / "d", command, RANK)
    else:  # No log: the process itself has left what it died of.
        done = ttrace("record", "-o", tmp_path / "t", "--", *shlex.split(command))
    assert done.returncode == (2 if verb == "diff" else 1), said(done)
    assert "the command exited with code 1: TypeError: int() argument" in done.stderr, said(done)
    assert "PYTHONPATH" not in done.stderr, said(done)


def test_distinct_causes_have_distinct_words(tmp_path: Path) -> None:
    """Plain torch without attach, Python without torch, a refusal: each has one cause."""
    refusal = (
        "from ttrace.capture.session import Session; from ttrace.capture.settings import Settings;"
        " Session(Settings.from_environment()).stop('the model is sharded')"
    )
    said_of = {}
    crash = "import torch; int([])"  # It may have been on its way to attach().
    short = (
        "from ttrace.capture.session import Session; from ttrace.capture.settings import Settings;"
        " session = Session(Settings.from_environment());"
        " [session.next_iteration() for _ in range(4)]"  # the fourth does not end
    )
    for name, code in (
        ("bare", "pass"),
        ("torch", "import torch"),
        ("refusal", refusal),
        ("crash", crash),
        ("short", short),
    ):
        asked = ("--iterations", "5:6") if name == "short" else ()
        done = ttrace("record", "-o", tmp_path / name, *asked, "--", sys.executable, "-c", code)
        assert done.returncode == (1 if name == "crash" else 2), said(done)
        assert "PYTHONPATH" not in done.stderr, said(done)
        said_of[name] = done.stderr
    assert "neither torch nor megatron.core" in said_of["bare"]
    assert "ttrace.attach(model, optimizer)" in said_of["torch"]
    assert "capture refused: the model is sharded" in said_of["refusal"]
    assert "failed before anything could be captured" in said_of["crash"]
    assert "the loop ran 3 iterations, and iterations 5:6 were asked for" in said_of["short"]
    for name in ("refusal", "crash", "short"):
        assert "attach" not in said_of[name]


def test_a_command_that_hangs_is_noticed_and_ended(tmp_path: Path) -> None:
    options = ("--timeout", "4s", "--stall-notice", "1s")
    start = time.monotonic()
    done = diff(tmp_path / "d", RANK, f"{RANK} --hang", *options)
    assert done.returncode == 2, said(done)
    assert time.monotonic() - start < 60
    place = "rank 0: output of layers.1.mlp (iteration 1, leg real)"
    notices = re.findall(
        r"candidate: no rank wrote for .*; last record of each rank: (.*)", done.stderr
    )
    # On a busy machine it may be slow on its way there, which is said as well.
    assert notices and notices[-1] == place, said(done)
    assert notices.count(place) <= 2, "a notice repeated without end is noise"
    assert f"the time it was given; last record of each rank: {place}" in done.stderr, said(done)
    done = ttrace(
        "record", "-o", tmp_path / "t", "--timeout", "2", "--", *shlex.split(RANK), "--hang"
    )
    assert done.returncode == 2, said(done)
    assert place in done.stderr, said(done)


def test_progress_reaches_a_log(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", f"{RANK} --sleep", f"{RANK} --sleep")
    for phase in (
        r"reference: capture began after [0-9.]+ s",
        r"candidate: capture began after [0-9.]+ s",
        r"compared [0-9,]+ tensors in [0-9.]+ s",
    ):
        assert re.search(phase, done.stderr), said(done)


def test_long_commands_are_shortened(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", RANK, f"{RANK} {' '.join(['--scale 1'] * 100)}")
    assert done.returncode == 0, said(done)
    assert all(len(line) < 200 for line in done.stdout.splitlines()), said(done)


def test_a_verdict_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    record(tmp_path / "t")
    for arguments in (
        ("check", tmp_path / "t", tmp_path / "t"),
        ("inspect", tmp_path / "t"),
        ("version",),
    ):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [str(TTRACE), *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert done.returncode == 2, done.stderr
        assert "cannot write to standard output" in done.stderr


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk takes root")
    try:
        fill = "import sys; sys.stdout.write('x' * 400000 + '\\nNo space left\\n'); sys.exit(1)"
        command = f"{shlex.quote(sys.executable)} -c {shlex.quote(fill)}"
        done = diff(disk / "d", command, RANK)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert done.returncode == 2, said(done)
    assert "printed nothing" not in done.stderr, said(done)
    assert "| No space left" in done.stderr, said(done)
    assert "is incomplete: No space left on device" in done.stderr, said(done)
    assert re.search(r"the file system of '.*' has .* left", done.stderr), said(done)


# Processes that outlive others


def waiting(marker: str) -> str:
    """A command with a process in a session of its own, as torchrun's workers are."""
    return (
        f"setsid {shlex.quote(sys.executable)} -c 'import time; time.sleep(99)' {marker} &"
        " echo started; wait"
    )


def wait_for(condition: object, what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def end(marker: str) -> None:
    for pid in processes_with(marker):
        os.kill(pid, signal.SIGKILL)


def test_a_killed_ttrace_takes_its_ranks_along(tmp_path: Path) -> None:
    marker = f"ttrace-test-{os.getpid()}-killed"
    running = subprocess.Popen(
        [str(TTRACE), "diff", "-o", str(tmp_path / "d"), "--reference", waiting(marker)]
        + ["--candidate", RANK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # ttrace itself, its shell and the process.
        wait_for(lambda: len(processes_with(marker)) >= 3, "nothing started")
        time.sleep(0.3)
        running.kill()
        _, errors = running.communicate(timeout=60)
        wait_for(lambda: not processes_with(marker), "ranks are left")
        assert "was killed" in errors
    finally:
        end(marker)


def test_ranks_of_a_killed_launcher_are_ended_and_said(tmp_path: Path) -> None:
    marker = f"ttrace-test-{os.getpid()}-launcher"
    launcher = waiting(marker).replace("wait", "sleep 1; kill -KILL $$")
    try:
        done = ttrace("record", "-o", tmp_path / "t", "--", "/bin/sh", "-c", launcher)
        assert done.returncode == 128 + signal.SIGKILL, said(done)
        assert "1 process of the run outlived the command and was ended" in done.stderr, said(done)
        assert processes_with(marker) == []
    finally:
        end(marker)


def test_what_outlives_a_recorded_command_is_said_and_kept(tmp_path: Path) -> None:
    marker = f"ttrace-test-{os.getpid()}-outlives"
    command = waiting(marker).replace(" &", " > /dev/null 2>&1 &").replace("wait", "sleep 1")
    try:
        done = ttrace("record", "-o", tmp_path / "t", "--", "/bin/sh", "-c", command)
        (pid,) = processes_with(marker)
        assert f"process {pid} of the run outlived the command and still runs" in done.stderr
        # A later run says so as well, and does not empty the folder under it.
        again = ttrace("record", "-o", tmp_path / "u", "--", "true")
        assert f"process {pid} of it still runs" in again.stderr, said(again)
        forced = ttrace("record", "--force", "-o", tmp_path / "t", "--", "true")
        assert forced.returncode == 2
        assert f"process {pid} of an earlier run may still write there" in forced.stderr
        assert (tmp_path / "t" / "manifest.json").exists()
    finally:
        end(marker)


def test_force_spares_a_folder_in_use(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [str(TTRACE), "diff", "-o", str(tmp_path / "d"), "--reference", f"{RANK} --hang"]
        + ["--candidate", RANK],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        index = tmp_path / "d" / "reference" / "rank-00000.r0" / "index.jsonl"
        wait_for(index.exists, "nothing recorded")
        for forced in (
            diff(tmp_path / "d", RANK, RANK, "--force"),
            ttrace("record", "--force", "-o", tmp_path / "d" / "reference", "--", "true"),
        ):
            assert forced.returncode == 2, said(forced)
            assert "is in use" in forced.stderr, said(forced)
            assert index.exists()
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=60)
    done = diff(tmp_path / "d", RANK, RANK, "--force")
    assert done.returncode == 0, said(done)


# Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    marker = f"ttrace-test-{os.getpid()}-{number}"
    ready = tmp_path / "ready"
    # One process in a session of its own, as torchrun's workers are.
    command = f"setsid python3 -c 'import time; time.sleep(99)' {marker} & touch {ready}; sleep 99"
    running = subprocess.Popen(
        [str(TTRACE), "diff", "-o", str(tmp_path / "d"), "--reference", command]
        + ["--candidate", RANK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    # The launcher's shell has the marker in its command line too.
    while not (ready.exists() and len(processes_with(marker)) >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    running.send_signal(number)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 128 + number, errors
    assert "interrupted" in errors
    assert processes_with(marker) == []


# Looking


def test_inspect_shows_a_trace_a_tensor_and_a_result(tmp_path: Path) -> None:
    done = diff(tmp_path / "d", RANK, f"{RANK} --scale 2")
    shown = ttrace("inspect", tmp_path / "d" / "candidate")
    assert shown.returncode == 0, said(shown)
    for word in ("1 of 1", "tp=1", "replay", "output", "tiny_rank.py", "--notes shows them"):
        assert word in shown.stdout
    assert "replayer" not in shown.stdout, "what is for a check"
    notes = ttrace("inspect", tmp_path / "d" / "candidate", "--notes").stdout
    assert 'replayer x 1: {"name":"megatron"}' in notes
    shown = ttrace("inspect", tmp_path / "d" / "candidate", "layers.0*", "--iteration", "0")
    assert "layers.0.mlp output" in shown.stdout
    assert "layers.1.mlp" not in shown.stdout
    assert "min 4, max 18" in shown.stdout, said(shown)
    assert "4 6 8 10 12 14 ..." in shown.stdout
    shown = ttrace("inspect", tmp_path / "d" / "result.json")
    assert "diverged" in shown.stdout, said(done)
    assert ttrace("inspect", tmp_path / "d").stdout == shown.stdout
    missing = ttrace("inspect", tmp_path / "d" / "candidate", "layers.7")
    assert missing.returncode == 2
    assert "no tensor matches" in missing.stderr
    # The name of the model itself; the trace of a tiny rank has no tensor of it.
    assert "no tensor matches ''" in ttrace("inspect", tmp_path / "d" / "candidate", "").stderr


def test_inspect_says_which_legs_there_are_instead(tmp_path: Path) -> None:
    legs = ("--legs", "replay,noise:2,isolated.noise:1")
    record(tmp_path / "t", options=legs)
    record(tmp_path / "own", "--replayer", "none", options=legs)
    for trace in ("t", "own"):
        for leg, words in (
            ("noise", "no leg 'noise' without a number: give one of noise.1, noise.2"),
            ("isolated.noise", "without a number: give isolated.noise.1"),
            ("isolated", "it has isolated.noise.1, noise.1, noise.2, real, replay; record it with"),
            ("fp32", "ttrace record --legs fp32"),
            ("nosie.1", "no leg 'nosie.1'; did you mean noise.1?"),
            ("../t", "no leg '../t'; it has"),
        ):
            done = ttrace("inspect", tmp_path / trace, "*", "--leg", leg)
            assert done.returncode == 2
            assert words in done.stderr, said(done)
        shown = ttrace("inspect", tmp_path / trace, "*", "--leg", "noise.2", "--limit", "1")
        assert shown.returncode == 0, said(shown)
    overview = " ".join(ttrace("inspect", tmp_path / "own").stdout.split())
    assert "in legs/: isolated.noise.1, noise.1, noise.2, replay" in overview


def test_inspect_of_a_foreign_file_is_an_error(tmp_path: Path) -> None:
    for text in ("", "{}", "[1]", '{"schema": "x"}', "\x00\xff"):
        (tmp_path / "result.json").write_text(text)
        done = ttrace("inspect", tmp_path / "result.json")
        assert done.returncode == 2, said(done)
        assert "neither" in done.stderr


def on_a_terminal(*arguments: object, **environment: str) -> str:
    """What a command prints to a terminal."""
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm", **environment}
    done = subprocess.Popen(
        [str(TTRACE), *map(str, arguments)], stdout=slave, stderr=slave, env=env
    )
    os.close(slave)
    text = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(master)
    done.wait(timeout=60)
    return text.decode()


def test_colour_is_for_terminals_only(tmp_path: Path) -> None:
    record(tmp_path / "ref", options=("--as-reference",))
    record(tmp_path / "cand", "--scale", "2")
    check = ("check", tmp_path / "ref", tmp_path / "cand")
    environment = {"NO_COLOR": ""}
    assert "\033[" not in ttrace(*check).stdout
    assert "\033[" in on_a_terminal(*check, **environment)
    colourless = on_a_terminal(*check, NO_COLOR="1")
    assert "\033[" not in colourless.replace("\r\033[K", "")
