"""Which share of few-element faults does each statistic of the judge see?

Takes clean recorded runs, corrupts k elements of every tensor of the candidate in each leg, checks
the copy and counts the tensors that the norm, the block maximum and the element maximum flag.
Real values and real noise; the fault is not propagated.

    python scripts/few_elements.py REFERENCE CANDIDATE [--rounds 3]

Both are trace folders: `ttrace record --as-reference`, and DIR/candidate of `ttrace diff -o DIR`.
Needs libxxhash for the checksums of changed tensors.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from index_lines import read_lines

STATISTICS = ("norm", "block", "element")
FAULTS = [(k, factor) for k in (1, 4, 32) for factor in (1.1, 2.0)]
FLOATS = {"bfloat16": np.uint16, "float32": np.float32}
# Smaller tensors have one block, so that k elements are no few of many.
SMALLEST = 1024
TENSOR = ("fqn", "role", "iteration", "arg", "pass")
OCCURRENCE = (*TENSOR, "call", "micro_batch")
EXACT = ("data", "param", "param_updated", "optim_state", "grad_norm", "loss")


def xxh3(data: bytes) -> str:
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return f"{library.XXH3_64bits(data, len(data)):016x}"


def scaled(values: np.ndarray, at: list[int], factor: float) -> None:
    """Multiplies the elements `at` in place, rounding to the tensor's own precision."""
    if values.dtype == np.uint16:  # bfloat16: the upper half of a float
        wide = (values[at].astype(np.uint32) << 16).view(np.float32) * np.float32(factor)
        bits = wide.view(np.uint32)
        values[at] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    else:
        values[at] *= values.dtype.type(factor)


def corrupt(trace: Path, count: int, factor: float, rng: random.Random) -> None:
    """Changes `count` elements of one piece of every logical tensor."""
    pieces = defaultdict(list)
    replays = {}
    lines = {}
    for index in sorted(trace.glob("rank-*/index.jsonl")):
        lines[index] = read_lines(index)
        for line in lines[index]:
            if (
                line["type"] == "record"
                and line["dtype"] in FLOATS
                and line["role"] not in EXACT
                and math.prod(line["global_shape"]) >= SMALLEST
                and math.prod(line["shape"]) >= count
            ):
                if line["leg"] == "replay":
                    replays[(index, *(line[name] for name in OCCURRENCE))] = line
                else:
                    key = (line["leg"], *(line[name] for name in TENSOR))
                    pieces[key].append((index, line))
    for index, line in (rng.choice(choices) for choices in pieces.values()):
        at = rng.sample(range(math.prod(line["shape"])), count)
        change(index.parent, line, at, factor)
        # A fault of the program repeats itself. One that does not is non-determinism.
        twin = replays.get((index, *(line[name] for name in OCCURRENCE)))
        if line["leg"] == "real" and twin is not None:
            change(index.parent, twin, at, factor)
    for index, entries in lines.items():
        # The lines are no longer those that were chained.
        meta = json.loads((index.parent / "meta.json").read_text())
        (index.parent / "meta.json").write_text(json.dumps({**meta, "chained": False}) + "\n")
        for entry in entries:
            entry.pop("chain", None)
        index.write_text("".join(json.dumps(e, separators=(",", ":")) + "\n" for e in entries))


def change(rank: Path, line: dict, at: list[int], factor: float) -> None:
    """Multiplies elements of a recorded tensor, and says so in its line."""
    with (rank / f"segment-{line['segment']:05}.safetensors").open("r+b") as segment:
        segment.seek(line["offset"])
        values = np.frombuffer(segment.read(line["bytes"]), FLOATS[line["dtype"]]).copy()
        scaled(values, at, factor)
        line["xxh3"] = xxh3(values.tobytes())
        segment.seek(line["offset"])
        segment.write(values.tobytes())


def flags(leg: dict, statistic: str) -> bool:
    return any(
        test["statistic"] == statistic and float(test["headroom"]) > 1
        for test in leg["tests"]
        if "ranks" not in test
    )


def check(ttrace: Path, reference: Path, candidate: Path, out: Path) -> list[dict]:
    """The judged legs of tensors that are large enough."""
    done = subprocess.run(
        [ttrace, "check", reference, candidate, "-o", out], capture_output=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode())
    result = json.loads((out / "result.json").read_text())
    return [
        leg
        for tensor in result["tensors"]
        if tensor["role"] not in EXACT and tensor["verdict"] not in ("not_checkable", "unmatched")
        for leg in tensor["legs"]
        if leg["checkable"] and leg["elements"] >= SMALLEST
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reference", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ttrace", type=Path, default=Path(sys.executable).parent / "ttrace")
    options = parser.parse_args()
    rng = random.Random(0)
    print("| leg | elements x factor | tensors | " + " | ".join((*STATISTICS, "any")) + " |")
    print("|---" * (4 + len(STATISTICS)) + "|")
    for count, factor in FAULTS:
        seen: dict[str, list[list[bool]]] = defaultdict(list)
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as scratch:
                copy = Path(scratch, "candidate")
                shutil.copytree(options.candidate, copy)
                corrupt(copy, count, factor, rng)
                for leg in check(options.ttrace, options.reference, copy, Path(scratch, "out")):
                    seen[leg["leg"]].append([flags(leg, s) for s in STATISTICS])
        for leg, rows in seen.items():
            shares = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
            shares.append(sum(map(any, rows)) / len(rows))
            cells = " | ".join(f"{share:.2f}" for share in shares)
            print(f"| {leg} | {count} x {factor:g} | {len(rows)} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
