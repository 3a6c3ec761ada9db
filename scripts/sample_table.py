#!/usr/bin/env python3
"""What is named of planted faults where values were not kept, by the samples in summaries, and
what these samples take. Writes docs/evidence/samples.md.

    scripts/sample_table.py [--earlier COMMAND]

One run of the zoo is recorded with its values, with a fault of the mutation sweep in each
iteration, and judged by them; then with both runs condensed (`ttrace baseline`) to sketches and to
digests. COMMAND is a `ttrace` of an earlier version, which keeps no samples: the same runs are
condensed and judged by it as well. Resumable: what was judged is in sweep/samples/results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for folder in ("scripts", "tests", "zoo"):
    sys.path.insert(0, str(ROOT / folder))
from index_lines import read_lines  # noqa: E402
from mutation.mutant import Mutant  # noqa: E402
from mutation_sweep.experiments import experiments  # noqa: E402
from mutation_sweep.launch import Sweep, command  # noqa: E402
from mutation_sweep.plan import Launch  # noqa: E402
from runs import TTRACE  # noqa: E402

OUT = ROOT / "sweep" / "samples"
RESULTS = OUT / "results.jsonl"
TABLE = ROOT / "docs" / "evidence" / "samples.md"
MODEL = (
    *("--layers", "2", "--hidden", "128", "--ffn", "256", "--heads", "4", "--seq", "64"),
    *("--micro-batch", "2", "--global-batch", "4"),
)
TOPOLOGY = (2, ("--tp", "2", "--sp"))
BUCKETS = {"sketch": 1024}
FAULTS = (
    ("collective", "drop"),
    ("collective", "double"),
    ("collective", "permute"),
    ("collective", "delay"),
    ("output", "gain"),
    ("output", "piece"),
    ("grad_input", "gain"),
    ("grad_input", "piece"),
    ("grad_local", "gain"),
    ("grad_reduced", "piece"),
)


def mutants() -> tuple[Mutant, ...]:
    """One an iteration, each of another place."""
    out = []
    for number, (family, mechanism) in enumerate((*FAULTS, *FAULTS[:5]), start=1):
        size = 0.5 if mechanism == "gain" else 1.0
        ranks = "all" if family == "collective" else "one"
        out.append(Mutant(number, family, mechanism, ranks, size, 7919 * number))
    return tuple(out)


def run(*words: object) -> None:
    done = subprocess.run(
        [*map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    if done.returncode not in (0, 1, 2) or (done.returncode == 2 and "check" not in words):
        raise SystemExit(f"exit {done.returncode}: {shlex.join(map(str, words))}\n{done.stderr}")


def record(folder: Path, iterations: int, words: list[str], *options: object) -> Path:
    if not (folder / "recorded").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        range_of = ("--iterations", f"0:{iterations}")
        run(TTRACE, "record", *range_of, *options, "-o", folder / "trace", "--", *words)
        (folder / "recorded").touch()
    return folder / "trace"


def traces(sweep: Sweep, launch: Launch) -> tuple[Path, Path]:
    reference = record(
        sweep.reference(launch),
        sweep.iterations,
        command(sweep, launch, False),
        *("--legs", sweep.reference_legs),
    )
    sweep.mutants(launch).write_text(json.dumps([asdict(m) for m in launch.mutants]))
    candidate = record(
        sweep.candidate(launch),
        sweep.iterations,
        command(sweep, launch, True),
        *("--legs", sweep.candidate_legs, "--keep-values", "--graft", reference),
    )
    return reference, candidate


def condensed(trace: Path, fidelity: str, by: list[str], version: str) -> Path:
    out = trace.parent / f"{fidelity}-{version}"
    if not (out / "manifest.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        run(*by, "baseline", trace, "-o", out, "--buckets", BUCKETS[fidelity])
    return out


def named(traces: tuple[Path, Path], iteration: int, by: list[str]) -> dict[str, Any]:
    """Of the first culprit."""
    report = OUT / "report"
    shutil.rmtree(report, ignore_errors=True)
    chosen = ("--iterations", f"{iteration}:{iteration + 1}")
    run(*by, "check", *traces, *chosen, "-o", report)
    result = json.loads((report / "result.json").read_text())
    first = result["culprits"][0] if result["culprits"] else None
    return {
        "verdict": result["verdict"],
        "where": f"{first['role']} of {first['fqn']}" if first else "",
        "classes": [found["class"] for found in first["classes"]] if first else [],
        "evidence": first["classes"][0]["evidence"] if first and first["classes"] else "",
    }


def size_of(trace: Path, packed: bool) -> dict[str, int]:
    """Bytes: of tensors (a segment reserves room for its header), of indices, and of all of it as a
    .tar.gz."""
    indices = list(trace.rglob("index.jsonl"))
    lines = [line for path in indices for line in read_lines(path)]
    out = {
        "tensors": sum(r["bytes"] for r in lines if r["type"] == "record" and "same_as" not in r),
        "indices": sum(path.stat().st_size for path in indices),
    }
    if packed:
        path = OUT / "packed.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(trace)
        out["packed"] = path.stat().st_size
    return out


def judge(versions: dict[str, list[str]]) -> None:
    planned = mutants()
    sweep = Sweep(OUT, len(planned) + 1, "replay,noise:3", "replay", 1500)
    launch = Launch(0, "tp2sp", *TOPOLOGY, MODEL, False, False, planned)
    full = traces(sweep, launch)
    small = {
        f"{fidelity} {version}": (by, tuple(condensed(t, fidelity, by, version) for t in full))
        for version, by in versions.items()
        for fidelity in BUCKETS
    }
    known = {entry["iteration"] for entry in entries()}
    for iteration, kind, mutant, _ in experiments(sweep, launch):
        if kind == "nothing" or iteration in known:
            continue
        entry: dict[str, Any] = {"iteration": iteration, "fault": "none"}
        if mutant is not None:
            site = mutant["site"]
            where = site.get("op") or site.get("fqn") or ""
            entry["fault"] = f"{mutant['family']} {mutant['mechanism']}: {where}"
        entry["values"] = named(full, iteration, versions["now"])
        for way, (by, pair) in small.items():
            entry[way] = named(pair, iteration, by)
        with RESULTS.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(iteration, entry["fault"], flush=True)
    sizes = {way: [size_of(trace, True) for trace in pair] for way, (_, pair) in small.items()}
    sizes["values"] = [size_of(trace, False) for trace in full]
    (OUT / "sizes.json").write_text(json.dumps(sizes))


def entries() -> list[dict[str, Any]]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return sorted((json.loads(line) for line in lines), key=lambda entry: entry["iteration"])


def cell(found: dict[str, Any], values: dict[str, Any]) -> str:
    if not found["where"]:
        return "" if found["verdict"] in ("within", "bitwise_equal") else found["verdict"]
    text = " ".join(found["classes"]) or "-"
    return text if found["where"] == values["where"] else f"{text} at {found['where']}"


def page() -> list[str]:
    judged = entries()
    ways = ("values", "sketch earlier", "sketch now")
    columns = [way for way in ways if all(way in entry for entry in judged)]
    heads = [
        way.replace(" earlier", " without sample").replace(" now", " with sample")
        for way in columns
    ]
    lines = [
        "# What samples name",
        "",
        "Written by `scripts/sample_table.py`: faults of the mutation sweep, one an iteration, in",
        "a run of the zoo in fp32 (two layers, hidden 128, sequences of 64, TP 2 with SP against",
        "one process). Both runs were recorded with their values and then condensed by `ttrace",
        "baseline`: sketches of 1,024 numbers, with samples of 256 elements of a tensor. Classes",
        "of the first culprit (-: none); where that is another tensor than by values, it is named.",
        "Empty: nothing was blamed. Without isolated legs, which take values.",
        "",
        f"| fault | first culprit | {' | '.join(heads)} |",
        f"|{'---|' * (len(heads) + 2)}",
    ]
    for entry in judged:
        cells = [cell(entry[way], entry["values"]) for way in columns]
        lines.append(f"| {entry['fault']} | {entry['values']['where']} | {' | '.join(cells)} |")
    sizes = json.loads((OUT / "sizes.json").read_text())
    lines += [
        "",
        f"Bytes of the traces of these {len(mutants()) + 1} iterations: of tensors, of indices,",
        "and of all as a .tar.gz.",
        "",
        "| kept | reference: tensors | indices | packed | candidate: tensors | indices | packed |",
        "|---|---|---|---|---|---|---|",
    ]
    for way, head in zip(columns, heads, strict=True):
        numbers = [
            f"{trace[of]:,}" if of in trace else ""
            for trace in sizes[way]
            for of in ("tensors", "indices", "packed")
        ]
        lines.append(f"| {head} | {' | '.join(numbers)} |")
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--earlier", help="the command of an earlier version")
    parser.add_argument("--table", action="store_true", help="write the table and do nothing else")
    options = parser.parse_args()
    versions = {"now": [str(TTRACE)]}
    if options.earlier:
        versions["earlier"] = shlex.split(options.earlier)
    if not options.table:
        OUT.mkdir(parents=True, exist_ok=True)
        judge(versions)
    TABLE.write_text("\n".join(page()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
