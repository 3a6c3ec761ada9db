#!/usr/bin/env python3
"""Runs on a GPU what elsewhere runs on CPUs, and writes docs/evidence/gpu_runs.md.

    scripts/on_gpu.py                     # all; needs a CUDA device, megatron-core, transformers
    scripts/on_gpu.py --jobs 4 megatron   # some, four at a time; the others' rows stay

Recording may change no printed digit of a run, no clean run may be called diverged, and every fault
has to be found.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from row_table import RowTable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import runs  # noqa: E402
from families import cells_of, first_place  # noqa: E402

TABLE = ROOT / "docs/evidence/gpu_runs.md"
COLUMNS = ("run", "verdict", "compared", "headroom", "first, or why")
HEADER = """# What ran on a GPU

Written by `scripts/on_gpu.py` on {device}, torch {torch}.
All ranks of a run share the one GPU and talk through gloo; what is computed, is computed on it.
`unchanged`: the run is recorded (real leg only) and has to print what it prints untraced, to the
last digit. Else a reference with all its reruns is compared with a candidate of other parallelism;
`fault` names what was done to it. Headroom is error / bound of the worst tensor of the run itself.
Two iterations. Runs without a row were not tried yet.

"""
FAMILIES = ("bert", "gpt2", "gemma2", "mixtral", "t5", "vit", "mamba2", "deepseek3", "whisper")


@dataclass
class Case:
    name: str
    run: Callable[[Path], tuple[list[str], bool, str]]  # cells behind the name, fine, what was said


def unchanged(name: str, mode: str, ranks: int, script: str, *flags: str) -> Case:
    command = runs.launch(ranks, script, *flags)

    def said(words: list[str]) -> list[str]:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
        found = re.findall(r"^(?:step|state) .*$", done.stdout, re.MULTILINE)
        return sorted(found) or [done.stdout + done.stderr]

    def run(folder: Path) -> tuple[list[str], bool, str]:
        shell = ["/bin/sh", "-c", f"exec {command}"]
        plain = [said(shell) for _ in range(2)]
        record = [str(runs.TTRACE), "record", "-o", str(folder / "trace"), "--mode", mode]
        recorded = said([*record, "--iterations", "0:2", "--", *shell])
        if plain[0] != plain[1]:
            return ["-", "-", "-", "two untraced runs differ"], True, ""
        records = runs.ttrace("inspect", folder / "trace")
        same = recorded == plain[0] and records.code == 0
        text = "\n".join([*plain[0], "recorded:", *recorded, records.text])
        return ["the same" if same else "CHANGED", "-", "-", "-"], same, text

    return Case(f"unchanged, {name}, {mode}", run)


class References:
    """Of one process each, recorded when they are first asked for, by any thread."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ttrace-gpu-references-")
        self._lock = threading.Lock()
        self._recorded: dict[str, tuple[threading.Lock, list[runs.Outcome]]] = {}

    def of(self, script: list[str]) -> runs.Outcome:
        command = runs.launch(1, *script)
        with self._lock:
            number = len(self._recorded)
            lock, found = self._recorded.setdefault(command, (threading.Lock(), []))
        with lock:
            if not found:
                found.append(runs.record_reference(Path(self._folder.name) / str(number), command))
        return found[0]


def compared(
    references: References, name: str, script: list[str], ranks: int,
    flags: tuple[str, ...] = (), fault: str = "", candidate: list[str] | None = None,
) -> Case:  # fmt: skip
    def run(folder: Path) -> tuple[list[str], bool, str]:
        recorded = references.of(script)
        if recorded.code != 0:
            return ["no reference", "-", "-", "-"], False, recorded.text
        words = [*(candidate or script), *flags]
        outcome = runs.diff(folder / "report", recorded.folder, runs.launch(ranks, *words))
        verdict, *numbers, why = cells_of(outcome)
        if outcome.result.get("culprits"):
            why = first_place(outcome)
        fine = verdict == "diverged" if fault else verdict in ("within", "bitwise_equal")
        return [verdict, *numbers, why], fine, outcome.text

    return Case(name + (f", fault {fault}" if fault else ""), run)


def cases(references: References) -> list[Case]:
    compare = partial(compared, references)
    nano = "loops/nanogpt.py"
    out = [
        unchanged("nanogpt bf16", mode, 1, nano, "--device", "cuda", "--dtype", "bfloat16")
        for mode in ("full", "sketch", "bitwise")
    ]
    gpt = ["train_gpt.py", "--cuda"]
    state = ["--bf16", "--print-state", "--dropout", "0.1"]
    out += [
        unchanged("megatron bf16 tp2 sp", "full", 2, *gpt, *state, "--tp", "2", "--sp"),
        unchanged("megatron bf16", "bitwise", 1, *gpt, *state),
    ]
    faulty = ["loops/with_bug.py", "local_gradients"]
    for dtype in ("float32", "bfloat16", "float16"):
        script = [nano, "--device", "cuda", "--dtype", dtype, "--accumulate"]
        out.append(compare(f"nanogpt {dtype} dp2", [*script, "4"], 2, candidate=[*script, "2"]))
    script = [nano, "--compile", "--device", "cuda", "--dtype", "bfloat16", "--accumulate"]
    out.append(compare("nanogpt compiled dp2", [*script, "4"], 2, candidate=[*script, "2"]))
    script = ["--device", "cuda", "--accumulate"]
    out.append(
        compare("nanogpt float32 dp2", [nano, *script, "4"], 2, fault="local gradients",
                 candidate=[*faulty, f"zoo/{nano}", *script, "2"])
    )  # fmt: skip
    for family in FAMILIES:
        for precision in ([], ["--autocast"]):
            words = ["loops/families.py", family, "--device", "cuda", *precision]
            kind = " autocast" if precision else ""
            out.append(compare(f"{family}{kind} dp2", words, 2))
    words = ["loops/families.py", "phi", "--device", "cuda"]
    bad = [*faulty, "zoo/loops/families.py", *words[1:]]
    out.append(compare("phi dp2", words, 2, fault="local gradients", candidate=bad))
    trainer = ["loops/transformers_trainer.py", "--cuda"]
    out.append(compare("Trainer of transformers, once more", trainer, 1))
    clean = {
        "tp2": ["--tp", "2"], "tp2 sp": ["--tp", "2", "--sp"], "pp2": ["--pp", "2"],
        "dp2 distributed optimizer": ["--distributed-optimizer"],
        "tp2 sp recompute": ["--tp", "2", "--sp", "--recompute"],
    }  # fmt: skip
    for name, flags in clean.items():
        for precision in ([], ["--bf16"]):
            kind = "bf16" if precision else "fp32"
            out.append(compare(f"megatron {kind} {name}", [*gpt, *precision], 2, tuple(flags)))
    experts = [*gpt, "--bf16", "--experts", "4"]
    out.append(compare("megatron bf16 ep2", experts, 2, ("--ep", "2")))
    wide = [*gpt, "--bf16", "--hidden", "1024", "--heads", "16", "--kv-groups", "16",
            "--ffn", "4096", "--seq", "256", "--vocab", "8192", "--layers", "8"]  # fmt: skip
    out.append(compare("megatron bf16 tp2 sp, hidden 1024", wide, 2, ("--tp", "2", "--sp")))
    for bug, flags in {"T1": ["--tp", "2"], "T11": ["--tp", "2", "--sp"], "T9": ["--pp", "2"],
                       "T4": [], "OT8": ["--tp", "2"]}.items():  # fmt: skip
        flags = (*flags, "--bug", bug)
        out.append(compare(f"megatron bf16 {bug}", [*gpt, "--bf16"], 2, flags, "injected"))
    return out


def measure(case: Case) -> tuple[list[str], bool, str, float]:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ttrace-gpu-", ignore_cleanup_errors=True) as folder:
        try:
            cells, fine, said = case.run(Path(folder))
        except Exception as error:
            cells, fine, said = ["-", "-", "-", "-"], False, f"{type(error).__name__}: {error}"
    return [case.name, *cells], fine, said, time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="runs whose name contains one of these")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--missing", action="store_true", help="only those that have no row yet")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("on_gpu: torch finds no CUDA device here")
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    everything = cases(References())
    header = HEADER.format(device=torch.cuda.get_device_name(0), torch=torch.__version__)
    table = RowTable(TABLE, header, COLUMNS, [case.name for case in everything])
    chosen = [c for c in everything if any(word in c.name for word in options.names or [""])]
    if options.missing:
        chosen = [c for c in chosen if c.name not in table.rows]
    bad = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(measure, case) for case in chosen]):
            row, fine, said, seconds = future.result()
            table.set(row)
            mark = "" if fine else "  <-- not as it should be"
            print(f"{seconds:5.0f} s  {' | '.join(row)}{mark}", flush=True)
            if not fine:
                bad.append(row[0])
                print(said[-6000:], flush=True)
    print(f"on_gpu: not as they should be: {'; '.join(bad)}" if bad else "on_gpu: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
