"""Experiments of a project's file: run, reused, refused, interrupted, listed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch_ranks import launcher

ROOT = Path(__file__).resolve().parent.parent.parent
TTRACE = Path(sys.executable).with_name("ttrace")
RANK = f"{shlex.quote(sys.executable)} rank.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("tiny_rank.py"), tmp_path / "rank.py")
    return tmp_path


def write(project: Path, text: str) -> None:
    (project / "ttrace.toml").write_text(text.replace("RANK", RANK))


def ttrace(project: Path, *arguments: object, **options: object):
    return subprocess.run(
        [str(TTRACE), *map(str, arguments)],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"


def run_id(project: Path, name: str) -> str:
    return json.loads((project / ".ttrace" / name / "reference" / "manifest.json").read_text())[
        "run_id"
    ]


THREE = """
[defaults]
iterations = "0:1"
reference-legs = "replay,noise:1"
legs = "replay"

[experiments.first]
reference = "RANK"
candidates.clean = "RANK"
candidates.twice = { command = "RANK --scale 2" }

[experiments.broken]
reference = "RANK"
candidate = "RANK --crash-first"
"""


def test_all_experiments_run_and_the_worst_decides(project: Path) -> None:
    write(project, THREE)
    done = ttrace(project, "run", "--all")
    assert done.returncode == 1, said(done)
    table = done.stdout.splitlines()
    assert re.match(r"EXPERIMENT +VERDICT +FIRST PLACE +CLASS +TIME$", table[0]), said(done)
    assert re.match(r"first/clean +bitwise equal +\d+ s$", table[1]), said(done)
    assert re.match(r"first/twice +diverged +embedding output +\S.* +\d+ s$", table[2]), said(done)
    assert re.match(r"broken/candidate +inconclusive +\d+ s$", table[3]), said(done)
    assert "first step: the command exited with code 1" in done.stderr, said(done)
    results = project / ".ttrace"
    assert (results / ".gitignore").read_text() == "*\n"
    assert json.loads((results / "first/twice/result.json").read_text())["verdict"] == "diverged"
    broken = json.loads((results / "broken/candidate/result.json").read_text())
    assert broken["reason"].startswith("first step: the command exited with code 1: TypeError")
    # The reference was recorded for the first candidate, and serves the second.
    assert done.stderr.count("the reference is reused") == 1, said(done)
    assert not (results / "first" / "clean" / "reference").exists()
    # One by itself, and the worst of what is asked for.
    once = ttrace(project, "run", "first/clean", "first/clean")
    assert once.returncode == 0
    assert once.stdout.count("first/clean") == 1, "it is run once"
    assert ttrace(project, "run", "broken").returncode == 2
    listed = ttrace(project, "run", "--list").stdout
    assert "first/twice: diverged, first at embedding output" in listed
    assert "reference: recorded 20" in listed
    assert "broken/candidate: inconclusive" in listed
    assert ttrace(project, "run", "--names").stdout.split() == [
        "first",
        "first/clean",
        "first/twice",
        "broken",
        "broken/candidate",
    ]


ONE = """
[experiments.one]
iterations = "0:1"
reference-legs = "replay,noise:1"
legs = "replay"
no-first-step = true
reference = "RANK"
candidate = "RANK"
depends = ["conf*"]
"""


def test_a_reference_is_reused_until_something_it_depends_on_changes(project: Path) -> None:
    write(project, ONE)
    (project / "config").write_text("1")
    done = ttrace(project, "diff", "one")
    assert done.returncode == 0, said(done)
    assert "the reference is to be recorded: not recorded" in done.stderr
    recorded = run_id(project, "one")
    again = ttrace(project, "diff", "one")
    assert again.returncode == 0, said(again)
    assert "the reference is reused, recorded 20" in again.stderr
    assert run_id(project, "one") == recorded
    for change, why in (
        (lambda: (project / "config").write_text("2"), "file config has changed"),
        (lambda: (project / "rank.py").open("a").write("#\n"), "file rank.py has changed"),
        (lambda: write(project, ONE + "seed = 7\n"), "--seed is '7' instead of '0'"),
        (lambda: write(project, ONE + "environment.A = 'b'\n"), "--seed is '0' instead of '7'"),
        (lambda: shutil.rmtree(project / ".ttrace/one/reference"), "is not there any more"),
    ):
        change()
        listed = ttrace(project, "run", "--list")
        assert f"to be recorded again: {why}" in listed.stdout.replace("its trace ", ""), why
        before = json.loads((project / ".ttrace/one/reference.json").read_text())["run_id"]
        done = ttrace(project, "diff", "one")
        assert done.returncode == 0, said(done)
        assert why in done.stderr, said(done)
        assert run_id(project, "one") != before
    recorded = run_id(project, "one")
    assert ttrace(project, "diff", "one", "--legs", "none").returncode == 0
    assert run_id(project, "one") == recorded, "what the candidate reruns does not concern it"
    assert ttrace(project, "run", "one", "--fresh").returncode == 0
    assert run_id(project, "one") != recorded
    # Another recording in its place is none of what was noted.
    record = ["record", "--force", "-o", ".ttrace/one/reference", "--", *shlex.split(RANK)]
    assert ttrace(project, *record).returncode == 0
    assert "is not there any more" in ttrace(project, "run", "--list").stdout


def test_an_interrupted_recording_is_no_reference(project: Path) -> None:
    write(project, ONE.replace('reference = "RANK"', 'reference = "RANK --hang"'))
    (project / "config").write_text("1")
    write(project, (project / "ttrace.toml").read_text().replace("0:1", "0:2"))
    running = subprocess.Popen(
        [str(TTRACE), "run", "--all"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    index = project / ".ttrace/one/reference.new/rank-00000.r0/index.jsonl"
    deadline = time.monotonic() + 30
    while not index.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 130, out + errors
    assert re.search(r"one/candidate +interrupted", out), out + errors
    assert processes_in(project) == []
    assert not (project / ".ttrace/one/reference.json").exists()
    assert "reference: not recorded" in ttrace(project, "run", "--list").stdout


def test_an_interrupted_recording_leaves_the_old_reference(project: Path) -> None:
    """Until the new one is whole, with --fresh and when a file has changed."""
    write(project, ONE)
    config = project / "config"
    config.write_text("1")
    assert ttrace(project, "run", "one").returncode == 0
    recorded = run_id(project, "one")
    # The same command, which now stands still before it ends.
    hung = project / "hung"
    (project / "stop").mkdir()
    (project / "stop" / "array.py").write_text(
        f"import time\nopen({str(hung)!r}, 'w')\ntime.sleep(99)\n"
    )
    for arguments, content in ((["--fresh"], "1"), ([], "2")):
        config.write_text(content)
        hung.unlink(missing_ok=True)
        running = subprocess.Popen(
            [str(TTRACE), "run", "one", *arguments],
            cwd=project,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(project / "stop")},
        )
        deadline = time.monotonic() + 30
        while not hung.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, errors = running.communicate(timeout=60)
        assert running.returncode == 130, out + errors
        assert run_id(project, "one") == recorded
    config.write_text("1")
    again = ttrace(project, "run", "one")
    assert again.returncode == 0, said(again)
    assert "the reference is reused" in again.stderr, said(again)
    # Once it is whole it takes the old one's place, for all candidates of the call.
    fresh = ttrace(project, "run", "one", "--fresh")
    assert "the reference is to be recorded: --fresh" in fresh.stderr, said(fresh)
    assert run_id(project, "one") != recorded
    left = {path.name for path in (project / ".ttrace/one").iterdir()}
    assert left == {"reference", "reference.json", "reference.log", "candidate"}


def test_fresh_records_once_for_all_candidates(project: Path) -> None:
    write(project, THREE)
    assert ttrace(project, "run", "first").returncode == 1
    fresh = ttrace(project, "run", "first", "--fresh")
    assert fresh.stderr.count("the reference is to be recorded: --fresh") == 1, said(fresh)
    assert fresh.stderr.count("the reference is reused") == 1, said(fresh)


def test_all_experiments_are_looked_at_before_one_is_run(project: Path) -> None:
    """Each thing that is missing is said, with its place."""
    write(
        project,
        """
        [experiments.good]
        reference = "RANK"
        candidate = "RANK"
        [experiments.trace]
        reference-trace = "gone"
        candidate = "RANK"
        [experiments.files]
        reference = "RANK"
        candidate = "RANK"
        depends = ["gone/*.py"]
        [experiments.script]
        reference = "python gone.py"
        candidate = "RANK"
        [experiments.typed]
        reference = "RANK"
        candidates.one = "pythn rank.py"
        candidates.two = "python rnk.py"
        candidates.shell = "pythn rank.py; true"
        """,
    )
    done = ttrace(project, "run", "--all")
    assert done.returncode == 2, said(done)
    assert not (project / ".ttrace").exists(), "nothing was run"
    for line, what in (
        (6, "reference-trace"),
        (11, "no file of the project matches 'gone/*.py'"),
        (13, "reference: there is no script 'gone.py'"),
        (17, "one: there is no program 'pythn' in PATH; did you mean python?"),
        (18, "two: there is no script 'rnk.py'"),
    ):
        assert re.search(rf"ttrace.toml:{line}:\d+: {re.escape(what)}", done.stderr), said(done)
    assert done.stderr.count("ttrace.toml:") == 5, said(done)


def test_a_script_that_is_not_known_is_said_once(project: Path) -> None:
    (project / "run.sh").write_text(f"exec {RANK}\n")
    text = ONE.replace('"RANK"', '"sh run.sh"').replace("candidate =", "candidates.two =")
    write(project, text + '[experiments.one.candidates.three]\ncommand = "sh run.sh"\n')
    (project / "config").write_text("1")
    words = "which script of the project the reference runs cannot be seen"
    done = ttrace(project, "run", "one")
    assert done.returncode == 0, said(done)
    assert done.stderr.count(words) == 1, said(done)
    assert words in ttrace(project, "run", "--list").stdout
    assert words in ttrace(project, "diff", "one/two").stderr
    write(project, text.replace('"conf*"', '"conf*", "rank.py"'))
    assert words not in ttrace(project, "run", "one").stderr


def test_a_reference_without_its_legs_is_recorded_again(project: Path) -> None:
    write(project, ONE.replace("RANK", "RANK --replayer none"))
    (project / "config").write_text("1")
    assert ttrace(project, "run", "one").returncode in (0, 2)
    assert (project / ".ttrace/one/reference/legs/replay").is_dir()
    assert "the reference is reused" in ttrace(project, "run", "one").stderr
    shutil.rmtree(project / ".ttrace/one/reference/legs")
    again = ttrace(project, "run", "one")
    assert "to be recorded: files of its trace were removed or changed" in again.stderr, said(again)


def processes_in(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and Path(os.readlink(entry / "cwd")) == folder:
                found.append(int(entry.name))
        except OSError:
            pass  # it ended while we looked
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process(project: Path, number: signal.Signals) -> None:
    write(project, THREE.replace('reference = "RANK"', 'reference = "sleep 99"'))
    running = subprocess.Popen(
        [str(TTRACE), "run", "first"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not (project / ".ttrace/first/reference.new.log").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    running.send_signal(number)
    running.wait(timeout=60)
    while processes_in(project):
        assert time.monotonic() < deadline + 20, processes_in(project)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("text", "arguments", "hint"),
    [
        ("", ["run", "--all"], "ttrace.toml:1:1: there are no experiments"),
        ("[experiments.a]\nrefernce = 'x'\n", ["run", "--all"], "did you mean reference?"),
        (ONE + "keep = 'trace'\n", ["run", "one"], "ttrace.toml:10:1: --keep: trace not in"),
        (ONE + "timeout = 'soon'\n", ["diff", "one"], "ttrace.toml:10:1: --timeout: 'soon' is no"),
        (ONE + "graft = 'all'\n", ["run", "--list"], "ttrace.toml:10:1: --graft: cannot graft"),
        (
            ONE + "seed = 1.5\n",
            ["diff", "one"],
            "ttrace.toml:10:1: seed is a number with a fraction",
        ),
        (ONE + "output = 'x'\n", ["diff", "one"], "unknown key of an experiment 'output'"),
        (ONE, ["diff", "noe"], "no experiment 'noe'; did you mean one?"),
        (ONE, ["run", "one/candidat"], "no candidate 'candidat'; did you mean candidate?"),
        (ONE, ["run"], "which experiments?"),
        (ONE, ["run", "--all", "one"], "either --all or names"),
        (ONE, ["diff", "one"], "no file of the project matches 'conf*'"),
        (ONE, ["run", "--all", "--project", "other.toml"], "other.toml"),
        (ONE, ["diff", "one", "--candidate", "true"], "quote each command"),
        (THREE, ["diff", "first"], "name one of first/clean, first/twice, or run them all"),
        (
            THREE.replace('iterations = "0:1"', 'working-folder = "gone"'),
            ["run", "broken"],
            "working-folder",
        ),
    ],
)
def test_mistakes_have_a_place_and_a_hint(
    project: Path, text: str, arguments: list[str], hint: str
) -> None:
    write(project, text)
    done = ttrace(project, *arguments)
    assert done.returncode == 2, said(done)
    assert hint in done.stderr, said(done)


def test_environment_folder_and_options_are_those_of_the_file(project: Path) -> None:
    """What the sides see, by what they say; and what is typed holds instead of the file."""
    (project / "sub").mkdir()
    shutil.move(project / "rank.py", project / "sub" / "rank.py")
    write(
        project,
        """
        output = "results"
        [defaults]
        environment = { BOTH = "file", KEEP = "default" }
        working-folder = "sub"
        [experiments.one]
        iterations = "0:1"
        reference-legs = "replay"
        legs = "none"
        no-first-step = true
        environment = { KEEP = "own" }
        reference-environment = { SIDE = "reference" }
        reference = "echo $BOTH $KEEP $SIDE; RANK"
        [experiments.one.candidates.two]
        command = "echo $BOTH $KEEP $SIDE; RANK"
        environment = { SIDE = "it's the candidate" }
        """,
    )
    environment = {**os.environ, "BOTH": "caller", "SIDE": "caller"}
    done = ttrace(project, "diff", "one/two", "--iterations", "0:2", env=environment)
    assert done.returncode in (0, 2), said(done)
    one = project / "results" / "one"
    assert (one / "reference.log").read_text().startswith("file own reference\n")
    assert (one / "two" / "candidate.log").read_text().startswith("file own it's the candidate\n")
    result = json.loads((one / "two" / "result.json").read_text())
    assert result["iterations"] == [0, 1], said(done)
    # From another folder, by its name; and one that is recorded serves there, too.
    again = ttrace(Path("/"), "run", "one", "--project", project / "ttrace.toml", env=environment)
    assert "--iterations is '0:1' instead of '0:2'" in again.stderr, said(again)


def test_a_trace_can_be_the_reference(project: Path) -> None:
    recorded = ttrace(project, "record", "-o", "golden", "--as-reference", "--", *shlex.split(RANK))
    assert recorded.returncode == 0, said(recorded)
    write(
        project,
        """
        [experiments.one]
        reference-trace = "golden"
        candidate = "RANK"
        """,
    )
    done = ttrace(project, "run", "one", "-v")
    assert done.returncode == 0, said(done)
    assert "CLEAN" in done.stdout, "the report, as it was asked for"
    assert "reference: the trace golden" in ttrace(project, "run", "--list").stdout


def test_a_trace_of_the_results_may_be_made_by_an_experiment_before(project: Path) -> None:
    write(
        project,
        ONE + '[experiments.two]\nreference-trace = ".ttrace/one/reference"\ncandidate = "RANK"\n',
    )
    (project / "config").write_text("1")
    done = ttrace(project, "run", "--all")
    assert done.returncode == 0, said(done)


def test_a_reference_that_is_reused_needs_no_program(project: Path, tmp_path_factory) -> None:
    program = tmp_path_factory.mktemp("elsewhere") / "launch"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    write(project, ONE.replace('reference = "RANK"', f'reference = "{program} rank.py"'))
    (project / "config").write_text("1")
    assert ttrace(project, "run", "one").returncode == 0
    program.unlink()
    again = ttrace(project, "run", "one")
    assert again.returncode == 0, said(again)
    fresh = ttrace(project, "run", "one", "--fresh")
    assert fresh.returncode == 2
    assert f"reference: there is no program '{program}'" in fresh.stderr, said(fresh)


def test_an_experiment_in_progress_is_not_run_twice(project: Path) -> None:
    write(project, ONE)
    (project / "config").write_text("1")
    folder = project / ".ttrace" / "one"
    folder.mkdir(parents=True)
    result = folder / "candidate" / "result.json"
    result.parent.mkdir()
    result.write_text('{"schema":2,"verdict":"within","exit_code":0,"reason":""}')
    held = subprocess.Popen(["flock", folder, "sleep", "60"])
    try:
        time.sleep(0.3)
        done = ttrace(project, "diff", "one")
        assert done.returncode == 2
        assert "is in use" in done.stderr, said(done)
        # What is there was found by somebody else.
        run = ttrace(project, "run", "one")
        assert run.returncode == 2
        assert re.search(r"one/candidate +no result", run.stdout), said(run)
        assert "reports:" not in run.stdout
        assert result.exists()
    finally:
        held.kill()
        subprocess.run(["pkill", "-P", str(held.pid)])
        held.wait()


def test_foreign_files_are_left_alone(project: Path) -> None:
    write(project, ONE)
    (project / "config").write_text("1")
    mine = project / ".ttrace" / "one" / "candidate" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("x")
    done = ttrace(project, "run", "one")
    assert done.returncode == 2, said(done)
    assert "thesis.txt" in done.stderr
    assert mine.exists()
    # In the reference's place before anything is recorded.
    in_place = mine.parent.parent / "reference" / "thesis.txt"
    in_place.parent.mkdir()
    mine.rename(in_place)
    done = ttrace(project, "run", "one")
    assert "'.ttrace/one/reference' is not something that ttrace wrote" in done.stderr, said(done)
    assert in_place.exists()
    assert not (mine.parent.parent / "reference.new").exists()


def example(folder: Path) -> dict[str, str]:
    """The example, and the environment to run it in: torchrun, which imports torch for each rank
    anew, is stood in for."""
    for file in ("ttrace.toml", "train.py"):
        shutil.copy(ROOT / "examples" / "project" / file, folder)
    torchrun = folder / "bin" / "torchrun"
    torchrun.parent.mkdir()
    python, script, _ = launcher(0)
    torchrun.write_text(
        f'#!/bin/sh\nshift; n=$1; shift; exec {shlex.join([python, script])} "$n" "$@"\n'
    )
    torchrun.chmod(0o755)
    return {**os.environ, "PATH": f"{torchrun.parent}:{os.environ['PATH']}"}


@pytest.mark.matrix
def test_the_example_finds_its_mistake(tmp_path: Path) -> None:
    """In as few launches as there are."""
    fewer = ("--reference-legs", "noise:2", "--legs", "none", "--no-first-step")
    done = ttrace(tmp_path, "diff", "data-parallel/unreduced", *fewer, env=example(tmp_path))
    assert done.returncode == 1, said(done)
    assert "P: missing partial sum" in done.stdout, said(done)


@pytest.mark.matrix
def test_the_example_does_what_its_page_says(tmp_path: Path) -> None:
    done = ttrace(tmp_path, "run", "--all", env=example(tmp_path))
    assert done.returncode == 1, said(done)
    assert re.search(r"data-parallel/two +within", done.stdout), said(done)
    assert re.search(r"data-parallel/unreduced +diverged .* P missing partial sum ", done.stdout), (
        said(done)
    )
