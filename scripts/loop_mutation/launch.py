"""Runs an experiment: what the mutant changes without a tool, and what `ttrace diff` says."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from loop_mutation.plan import ITERATIONS, ROOT, Experiment, Kind
from mutation.loops.options import LoopOptions

sys.path.insert(0, str(ROOT / "tests"))
from launch_ranks import launcher

TTRACE = Path(sys.executable).with_name("ttrace")
REFERENCE_LEGS = "replay,noise:3,isolated.noise:2"
LEGS = "replay,isolated"
HERE, APART = "here", "apart"  # all legs in one launch; a launch for each
_OPTIONS: dict[str, tuple[str, ...]] = {HERE: (), APART: ("--launch-per-leg",)}
_TIMEOUT_S = 600
# Of what experiments share: the first that needs it makes it.
_locks: defaultdict[tuple[str, str], Lock] = defaultdict(Lock)


class LaunchFailed(Exception):
    """A command did not do what it had to. Says which and how it ended."""


def command(options: LoopOptions, *more: str) -> list[str]:
    script = str(ROOT / "zoo" / "train_loop.py")
    return [*launcher(options.ranks), script, *options.words(), *more]


def _run(words: list[str], *codes: int) -> str:
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    if done.returncode not in codes:
        text = (done.stdout + done.stderr)[-3000:]
        raise LaunchFailed(f"exit {done.returncode}: {shlex.join(words)}\n{text}")
    return done.stdout + done.stderr


def reference(kind: Kind, folder: Path, way: str) -> Path:
    """Recorded once."""
    trace = folder / f"reference-{kind.name.replace(' ', '-')}-{way}"
    with _locks[kind.name, way]:
        if not (trace / "complete").exists():
            shutil.rmtree(trace, ignore_errors=True)
            words = [str(TTRACE), "record", "--as-reference", "--dropout", "off", "-o", str(trace)]
            words += ["--iterations", f"0:{ITERATIONS}", "--legs", REFERENCE_LEGS, *_OPTIONS[way]]
            _run([*words, "--", *command(kind.reference)], 0)
            (trace / "complete").touch()
    return trace


def diff(
    experiment: Experiment, folder: Path, way: str, keep: bool
) -> tuple[dict[str, Any], float, str]:
    """(result.json, seconds, what was printed)"""
    kind, out = experiment.kind, folder / f"diff-{experiment.name.replace(':', '-')}-{way}"
    trace = reference(kind, folder, way)
    begin = time.monotonic()
    words = [str(TTRACE), "diff", "--force", "-o", str(out), "--reference-trace", str(trace)]
    words += ["--iterations", f"0:{ITERATIONS}", "--legs", LEGS, *_OPTIONS[way]]
    words += ["--candidate", shlex.join(command(kind.options, *_planted(experiment, folder, way)))]
    text = _run(words, 0, 1, 2)
    if not (out / "result.json").exists():
        raise LaunchFailed(f"no result: {shlex.join(words)}\n{text[-3000:]}")
    result = json.loads((out / "result.json").read_text())
    if not keep:
        shutil.rmtree(out)
    return result, time.monotonic() - begin, text


def _planted(experiment: Experiment, folder: Path, way: str) -> list[str]:
    if experiment.mutant is None:
        return []
    path = folder / f"mutant-{experiment.name.replace(':', '-')}-{way}.json"
    path.write_text(json.dumps(asdict(experiment.mutant)))
    return ["--mutant", str(path)]


def blamed(experiment: Experiment, folder: Path) -> list[str]:
    """Patterns of names, which the loop wrote when it was measured."""
    path = folder / f"mutant-{experiment.name.replace(':', '-')}-measured.json.place"
    return list(json.loads(path.read_text()))


def relative_change(experiment: Experiment, folder: Path) -> float:
    """How much of what the iterations with the fault do is otherwise than without it: the larger of
    gradients and of what steps leave, by all ranks. 0: nothing is."""
    kind = experiment.kind
    honest_path = folder / f"measured-{kind.name.replace(' ', '-')}"
    with _locks[kind.name, "measured"]:
        if not Path(f"{honest_path}.rank-{kind.options.ranks - 1}").exists():
            _run(command(kind.options, "--measure", str(honest_path)), 0)
    path = folder / f"measured-{experiment.name.replace(':', '-')}"
    words = _planted(experiment, folder, "measured")
    _run(command(kind.options, "--measure", str(path), *words), 0)
    assert experiment.mutant is not None
    largest = 0.0
    for what in ("gradients", "after"):
        error = truth = 0.0
        for rank in range(kind.options.ranks):
            right = torch.load(f"{honest_path}.rank-{rank}")
            wrong = torch.load(f"{path}.rank-{rank}")
            for step in range(experiment.mutant.since, ITERATIONS):
                before = right[step - 1]["after"] if step and what == "after" else {}
                for name, value in right[step][what].items():
                    start = before.get(name, torch.zeros_like(value)).double()
                    other = wrong[step][what].get(name, torch.zeros_like(value)).double()
                    error += float((other - value.double()).square().sum())
                    truth += float((value.double() - start).square().sum())
        if error:
            share = math.sqrt(error / truth) if truth else math.inf
            largest = max(largest, share if math.isfinite(share) else math.inf)
    for rank in range(kind.options.ranks):
        Path(f"{path}.rank-{rank}").unlink()
    return largest
