#!/usr/bin/env python3
"""A check of traces that are larger than memory: its time beside that of reading them once, its
memory, and the same on Ray with a worker killed. Writes docs/evidence/large_pair.md.

    bench/large_pair.py [--gb 100] [--folder DIR] [--workers 1,2,4]

Writes a pair of --gb GB of tensors in all into --folder, which has to have room for it. Each tensor
is of 4 Mi fp32 elements; the reference is one process with three noise legs, measured where they
run, the candidate four with shards of it. The file cache is emptied before each reading where the
system allows it. With Ray (pip install 'torch-ttrace[ray]') result.json has to be the same,
whatever the workers and whichever of them is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from ttrace import _native

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TABLE = ROOT / "docs" / "evidence" / "large_pair.md"
ROWS, COLUMNS, RANKS = 2048, 2048, 4
SIZE = ROWS * COLUMNS * 4
NOISE = ("noise.1", "noise.2", "noise.3")


def values_of(number: int, base: torch.Tensor) -> torch.Tensor:
    return base * (1 + number / 1024)


def noisy(values: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    strip = 2 * torch.rand(COLUMNS, generator=generator) - 1
    return values * (1 + strip * 2.0**-20)


def write(
    folder: Path, rank: int, ranks: int, tensors: int, legs: dict[str, Callable[..., torch.Tensor]]
) -> None:
    base = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    mesh, place = ([("tp", ranks)], [rank]) if ranks > 1 else ([], [])
    measured = list(NOISE) if ranks == 1 else None
    writer = _native.Writer(str(folder), rank, ranks, mesh, place, measured_legs=measured)
    own = ROWS // ranks
    for number in range(tensors):
        spec = writer.spec(
            f"layers.{number}", "output", "0", "float32", [own, COLUMNS],
            "tp:Shard(0)" if ranks > 1 else "", -1, 0, (1, 1), [],
        )  # fmt: skip
        whole = values_of(number, base)
        for leg, change in legs.items():
            piece = change(whole)[rank * own : (rank + 1) * own].contiguous()
            writer.append(spec, leg, 0, 0, "forward", -1, 0, piece.data_ptr(), [COLUMNS, 1])
    for leg in legs:
        writer.seal(0, leg)
    writer.close(True, "")


def write_pair(folder: Path, tensors: int) -> tuple[Path, Path]:
    reference, candidate = folder / "reference", folder / "candidate"
    for one in (reference, candidate):
        one.mkdir(parents=True)
        (one / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    legs: dict[str, Callable[..., torch.Tensor]] = {"real": lambda whole: whole}
    for seed, leg in enumerate(NOISE):
        legs[leg] = lambda whole, seed=seed: noisy(whole, seed)
    write(reference, 0, 1, tensors, legs)
    for rank in range(RANKS):
        write(candidate, rank, RANKS, tensors, {"real": lambda whole: noisy(whole, 9)})
    return reference, candidate


def empty_the_cache() -> bool:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def read_once(folder: Path, threads: int) -> float:
    """Seconds of reading all files with this many threads, each a share of them."""
    empty_the_cache()
    files = sorted(folder.rglob("*.safetensors"))

    def read(share: list[Path]) -> None:
        buffer = bytearray(8 << 20)
        for path in share:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    start = time.perf_counter()
    readers = [threading.Thread(target=read, args=(files[n::threads],)) for n in range(threads)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return time.perf_counter() - start


def check(pair: tuple[Path, Path], out: Path, *options: str) -> tuple[float, float, dict]:
    """Seconds, MB of memory at most, and what result.json says but for times."""
    empty_the_cache()
    shutil.rmtree(out, ignore_errors=True)
    words = [BIN / "ttrace", "check", *pair, "-o", out, *options]
    start = time.perf_counter()
    with (out.parent / "said").open("w+") as said:
        process = subprocess.Popen([str(word) for word in words], stdout=said, stderr=said)
        memory = 0
        # What the system reports of a process that has ended counts this one's memory, too.
        while process.poll() is None:
            memory = max(memory, peak_of(process.pid))
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        said.seek(0)
        assert process.returncode == 0, said.read()
    result = json.loads((out / "result.json").read_text())
    del result["seconds"]
    return seconds, memory / 1e6, result


def peak_of(pid: int) -> int:
    """Bytes that the process had in memory at most."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def workers_that_measure() -> list[int]:
    out = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::measure"):
                out.append(int(path.parent.name))
        except OSError:
            continue
    return out


def kill_one(after: float, killed: list[int]) -> None:
    """SIGKILL to a worker that measures, once it has done so for a while."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        found = workers_that_measure()
        if found:
            time.sleep(after)
            if found[0] in workers_that_measure():
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])
                return
        time.sleep(0.2)


def on_ray(
    pair: tuple[Path, Path], out: Path, workers: int, alone: float, kill: bool
) -> tuple[float, dict]:
    ray = str(BIN / "ray")
    # A cluster of this bench's own, on this machine: no token is agreed on.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    head = [ray, "start", "--head", f"--num-cpus={workers}", "--port=6399"]
    subprocess.run([*head, "--disable-usage-stats"], check=True, capture_output=True)
    killed: list[int] = []
    if kill:
        threading.Thread(target=kill_one, args=(alone / 8, killed), daemon=True).start()
    try:
        options = ("--engine", "ray", "--ray-address", "127.0.0.1:6399", "--parts", "8")
        seconds, _, result = check(pair, out, *options)
    finally:
        subprocess.run([ray, "stop", "--force"], check=False, capture_output=True)
    assert not kill or killed, "no worker was killed"
    return seconds, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=100)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--workers", default="1,2,4")
    options = parser.parse_args()
    tensors = max(1, int(options.gb * 1e9 / (2 * SIZE)))
    cores = os.cpu_count() or 1
    rows = []
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-", dir=options.folder) as name:
        folder = Path(name)
        free = shutil.disk_usage(folder).free
        if free < options.gb * 1.1e9:
            sys.exit(f"{folder} has room for {free / 1e9:.0f} GB: choose --gb or --folder")
        print(f"writing {2 * tensors} tensors of {SIZE / 1e6:.1f} MB", file=sys.stderr)
        pair = write_pair(folder, tensors)
        cold = empty_the_cache()
        read = read_once(folder, cores)
        seconds, memory, result = check(pair, folder / "report")
        compared = result["coverage"]["compared"]
        assert compared == tensors and result["verdict"] == "within", result["coverage"]
        rows.append(f"| reading all files once, {cores} threads | {read:.1f} s | 1.00 | |")
        ratio = f"{seconds:.1f} s | {seconds / read:.2f}"
        rows.append(f"| check, one process | {ratio} | {memory:.0f} MB |")
        if (BIN / "ray").exists():
            chosen = [int(word) for word in options.workers.split(",")]
            for workers, kill in [(n, False) for n in chosen] + [(chosen[-1], True)]:
                print(f"Ray, {workers} workers", file=sys.stderr)
                took, other = on_ray(pair, folder / "ray", workers, seconds, kill)
                assert other == result, "Ray's result is another one"
                how = f"Ray, 8 parts, {workers} workers" + (", one killed" if kill else "")
                rows.append(f"| {how} | {took:.1f} s | {took / read:.2f} | |")
    lines = [
        "# Traces larger than memory",
        "",
        "Written by `bench/large_pair.py`: a reference with three noise legs and a candidate of",
        f"{RANKS} ranks, {tensors} tensors of {SIZE / 1e6:.1f} MB on each side,",
        f"{2 * tensors * SIZE / 1e9:.0f} GB in all, on {platform.machine()} with {cores} cores,",
        f"shared and noisy. The file cache was {'emptied' if cold else 'not emptied'} before each.",
        "Ray's results are those of one process, byte for byte but for wall times.",
        "",
        "| what | time | x reading | memory at most |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
    TABLE.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
