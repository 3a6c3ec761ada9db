#!/usr/bin/env python3
"""A check of one tensor that is nearly all there is to check: whether all threads work on it.

    bench/large_tensor.py [--gb 1] [--rounds 5] [--threads 1,2] [--ttrace PATH ...]

Writes a pair of one fp32 tensor of --gb GB: the reference is one process with a noise leg, measured
where it ran, the candidate four ranks with shards of its columns, or one rank with all of it. The
first check of each command has to give what torch says of the values in double precision, and all
threads the same result, byte for byte but for times. Then checks and readings of the same files by
as many threads take turns; each figure is the best of --rounds. --ttrace: commands to compare,
such as that of another version; the files are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from ttrace import _native

COLUMNS = 8192


def write(folder: Path, values: torch.Tensor, ranks: int, noise: torch.Tensor | None) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    own = COLUMNS // ranks
    for rank in range(ranks):
        mesh, place = ([("tp", ranks)], [rank]) if ranks > 1 else ([], [])
        measured = None if noise is None else ["noise.1"]
        writer = _native.Writer(str(folder), rank, ranks, mesh, place, measured_legs=measured)
        spec = writer.spec(
            "embedding", "output", "0", "float32", [len(values), own],
            "tp:Shard(1)" if ranks > 1 else "", -1, 0, (1, 1), [],
        )  # fmt: skip
        for leg, whole in (("real", values), ("noise.1", noise)):
            if whole is None:
                continue
            piece = whole[:, rank * own : (rank + 1) * own].contiguous()
            writer.append(spec, leg, 0, 0, "forward", -1, 0, piece.data_ptr(), [own, 1])
            writer.seal(0, leg)
        writer.close(True, "")


def noisy(values: torch.Tensor, seed: int) -> torch.Tensor:
    strip = 2 * torch.rand(COLUMNS, generator=torch.Generator().manual_seed(seed)) - 1
    return values * (1 + strip * 2.0**-20)


def check(command: str, pair: tuple[Path, Path], out: Path, threads: int) -> tuple[float, dict]:
    shutil.rmtree(out, ignore_errors=True)
    words = [command, "check", *map(str, pair), "-o", str(out), "--threads", str(threads)]
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((out / "result.json").read_text())
    del result["seconds"]
    return seconds, result


def read(folders: tuple[Path, Path], threads: int) -> float:
    """Seconds of reading all files, each thread a part of each."""
    files = sorted(path for folder in folders for path in folder.rglob("*.safetensors"))

    def read_part(part: int) -> None:
        buffer = memoryview(bytearray(256 << 10))
        for path in files:
            size = path.stat().st_size
            end = size * (part + 1) // threads
            with path.open("rb", buffering=0) as file:
                at = file.seek(size * part // threads)
                while at < end:
                    at += file.readinto(buffer[: min(len(buffer), end - at)])

    start = time.perf_counter()
    readers = [threading.Thread(target=read_part, args=(part,)) for part in range(threads)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return time.perf_counter() - start


def error_by_torch(reference: torch.Tensor, candidate: torch.Tensor) -> float:
    error = size = 0.0
    for a, b in zip(reference.split(512), candidate.split(512), strict=True):
        error += (b.double() - a.double()).square().sum().item()
        size += a.double().square().sum().item()
    return math.sqrt(error / size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--folder", type=Path)
    own = str(Path(sys.executable).parent / "ttrace")
    parser.add_argument("--ttrace", nargs="+", default=[own])
    options = parser.parse_args()
    threads = [int(word) for word in options.threads.split(",")]
    rows = max(1, int(options.gb * 2**30 / (4 * COLUMNS)))
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-", dir=options.folder) as name:
        folder = Path(name)
        generator = torch.Generator().manual_seed(0)
        values = torch.randn(rows, COLUMNS, generator=generator)
        other = noisy(values, 9)
        want = error_by_torch(values, other)
        write(folder / "reference", values, 1, noisy(values, 1))
        for ranks in (1, 4):
            write(folder / f"of{ranks}", other, ranks, None)
        del values, other
        print("| ranks | threads | command | seconds | x reading | load |")
        print("|---|---|---|---|---|---|")
        for ranks in (1, 4):
            pair = (folder / "reference", folder / f"of{ranks}")
            results = []
            for command in options.ttrace:
                for n in threads:
                    results.append(check(command, pair, folder / "report", n)[1])
            got = results[0]["tensors"][0]["legs"][0]["err"]
            assert math.isclose(got, want, rel_tol=1e-5), (got, want)
            assert all(result == results[0] for result in results), "threads tell"
            for n in threads:
                seconds: dict[str, list[float]] = {command: [] for command in options.ttrace}
                reading = []
                for _ in range(options.rounds):
                    reading.append(read(pair, n))
                    for command in options.ttrace:
                        seconds[command].append(check(command, pair, folder / "report", n)[0])
                base = min(reading)
                load = os.getloadavg()[0]
                for command, took in seconds.items():
                    best = min(took)
                    print(
                        f"| {ranks} | {n} | {command} | {best:.2f} | {best / base:.1f} "
                        f"| {load:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
