"""Runs one launch: reference (once for all that share it), candidate, and a check an iteration."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutation_sweep.plan import ROOT, Launch

sys.path.insert(0, str(ROOT / "tests"))
from launch_ranks import launcher

BIN = Path(sys.executable).parent


class LaunchFailed(Exception):
    """A command did not do what it had to. Says which and how it ended."""


@dataclass(frozen=True)
class Sweep:
    """What all launches share."""

    folder: Path
    iterations: int
    reference_legs: str
    candidate_legs: str
    timeout_s: int
    record_options: tuple[str, ...] = ()  # of both runs

    def reference(self, launch: Launch) -> Path:
        return self.folder / f"reference-{launch.reference}"

    def candidate(self, launch: Launch) -> Path:
        return self.folder / f"candidate-{launch.number}"

    def mutants(self, launch: Launch) -> Path:
        return self.folder / f"mutants-{launch.number}.json"


def command(sweep: Sweep, launch: Launch, mutated: bool) -> list[str]:
    """The training command, of the reference or of the candidate."""
    processes, flags = (launch.processes, launch.flags) if mutated else (1, ())
    # The update of the last captured step is seen at the start of the next.
    words = [
        *launcher(processes),
        str(ROOT / "zoo" / "train_gpt.py"),
        "--steps",
        str(sweep.iterations + 1),
    ]
    words += [*launch.model, *flags]
    if mutated:
        words += ["--recompute"] if launch.recompute else []
        words += ["--mutants", str(sweep.mutants(launch))]
    return words


def record_reference(sweep: Sweep, launch: Launch) -> None:
    folder = sweep.reference(launch)
    if (folder / "recorded").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    # Masks of two topologies cannot be equal. --graft switches dropout off too.
    off = ("--dropout", "off") if launch.dropout else ()
    _record(sweep, folder / "trace", sweep.reference_legs, command(sweep, launch, False), off)
    (folder / "recorded").touch()


def record_candidate(sweep: Sweep, launch: Launch) -> None:
    folder = sweep.candidate(launch)
    shutil.rmtree(folder, ignore_errors=True)
    for log in sweep.folder.glob(f"mutants-{launch.number}.json.rank-*"):
        log.unlink()
    sweep.mutants(launch).write_text(json.dumps([asdict(m) for m in launch.mutants]))
    folder.mkdir()
    (folder / "reference").symlink_to(Path("..") / sweep.reference(launch).name / "trace")
    graft = ("--graft", str(sweep.reference(launch) / "trace"))
    _record(sweep, folder / "trace", sweep.candidate_legs, command(sweep, launch, True), graft)


def _record(sweep: Sweep, folder: Path, legs: str, run: list[str], more: tuple[str, ...]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    words = [str(BIN / "ttrace"), "record", "-o", str(folder), "--legs", legs]
    words += [*sweep.record_options, *more]
    words += ["--iterations", f"0:{sweep.iterations}", "--", *run]
    try:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "NO_COLOR": "1"},
        )
    except OSError as error:
        raise LaunchFailed(f"{error}: {shlex.join(words)}") from error
    text = _wait(process, sweep.timeout_s)
    if process.returncode != 0:
        log = sweep.folder / f"failed-{folder.parent.name}.log"
        log.write_text(text)
        raise LaunchFailed(f"exit {process.returncode}, see {log}: {shlex.join(words)}")


def _wait(process: subprocess.Popen[str], timeout_s: int) -> str:
    """What the process wrote. After `timeout_s` it is interrupted: then ttrace ends the training
    processes too, which it could not do if it were killed."""
    for patience_s in (timeout_s, 60):
        try:
            return process.communicate(timeout=patience_s)[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    process.kill()
    return process.communicate()[0]


def check(sweep: Sweep, launch: Launch, iteration: int, legs: str | None = None) -> dict[str, Any]:
    """The result.json of one iteration alone, judged by all legs of the reference or by these."""
    more = () if legs is None else ("--legs", legs)
    reference, candidate = sweep.reference(launch) / "trace", sweep.candidate(launch) / "trace"
    return check_traces(reference, candidate, iteration, more)


def check_traces(
    reference: Path, candidate: Path, iteration: int, more: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The same of any two traces. The report lies beside the candidate's for the time being."""
    report = candidate.parent / "report"
    shutil.rmtree(report, ignore_errors=True)
    words = [str(BIN / "ttrace"), "check", str(reference), str(candidate), "-o", str(report)]
    words += ["--iterations", f"{iteration}:{iteration + 1}", *more]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LaunchFailed(f"{error}: {shlex.join(words)}") from error
    found = report / "result.json"
    if done.returncode not in (0, 1, 2) or not found.exists():
        raise LaunchFailed(f"exit {done.returncode}: {shlex.join(words)}\n{done.stderr[-2000:]}")
    result = json.loads(found.read_text())
    shutil.rmtree(report)
    return result


def read_log(sweep: Sweep, launch: Launch) -> list[dict[str, Any]]:
    """What the ranks wrote of the mutants that happened."""
    lines: list[dict[str, Any]] = []
    for path in sorted(sweep.folder.glob(f"mutants-{launch.number}.json.rank-*.jsonl")):
        lines += [json.loads(line) for line in path.read_text().splitlines()]
    return lines
