#!/usr/bin/env python3
"""Comparing two tensors in memory, beside what one writes in torch for it, on one thread.

    bench/beside_torch.py [--rounds 5] [--bench build/release/compare_bench]

torch is asked for the relative error and the largest one, as people write it:

    fp32    d = b.float() - a.float();   d.norm() / a.float().norm();   d.abs().max()
    double  d = b.double() - a.double(); d.norm() / a.double().norm();  d.abs().max()

the core for these, the projection, how many elements differ and the worst block. Both are given
2^25 elements a side and take turns; figures are processor time of the thread, the best of --rounds.
`compare_bench` holds its result against the exact one before it is timed; torch's in fp32 has to be
near what it says in double, which for such long sums is not a matter of course.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
COUNT = 2**25
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


def in_floats(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    error = b.float() - a.float()
    return (error.norm() / a.float().norm()).item(), error.abs().max().item()


def in_doubles(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    error = b.double() - a.double()
    return (error.norm() / a.double().norm()).item(), error.abs().max().item()


def seconds_of(compare: Callable[..., tuple[float, float]], *pair: torch.Tensor) -> float:
    start = time.thread_time()
    compare(*pair)
    return time.thread_time() - start


def of_core(bench: Path, name: str) -> float:
    """10^9 elements a second."""
    words = [bench, f"--benchmark_filter=^{name}/{name}/DRAM$", "--benchmark_format=json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    (result,) = json.loads(done.stdout)["benchmarks"]
    assert not result.get("error_occurred"), result
    return result["Gel/s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bench", type=Path, default=ROOT / "build" / "release" / "compare_bench")
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(COUNT, generator=generator)
    other = values * (1 + torch.randn(COUNT, generator=generator) / 16)
    print(
        "| both sides | core, 10^9 elements/s | torch in fp32 | ratio | in double | ratio | load |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, dtype in DTYPES.items():
        pair = values.to(dtype), other.to(dtype)
        floats, doubles = in_floats(*pair), in_doubles(*pair)
        assert math.isclose(floats[0], doubles[0], rel_tol=1e-2), (floats, doubles)
        assert math.isclose(floats[1], doubles[1], rel_tol=1e-5), (floats, doubles)
        core, took = 0.0, {in_floats: math.inf, in_doubles: math.inf}
        for _ in range(options.rounds):
            core = max(core, of_core(options.bench, name))
            for compare, best in took.items():
                took[compare] = min(best, seconds_of(compare, *pair))
        rates = [COUNT / seconds / 1e9 for seconds in took.values()]
        cells = "".join(f" {rate:.3f} | {core / rate:.0f} |" for rate in rates)
        print(f"| {name} | {core:.2f} |{cells} {os.getloadavg()[0]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
