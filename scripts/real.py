#!/usr/bin/env python3
"""Compares runs of Megatron-LM's own pretrain_gpt.py, and writes docs/evidence/real.md.

    make real MEGATRON_LM=path       # all; about a minute each
    scripts/real.sh path TP2 bug     # those whose name contains one of these; other rows stay
    scripts/real.sh path --missing   # those that have no row yet

The checkout must have the version of megatron-core that requirements-demo.txt pins.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from row_table import RowTable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import runs  # noqa: E402
from cases import bug_catalog  # noqa: E402
from matrix import worst  # noqa: E402

TABLE = ROOT / "docs/evidence/real.md"

# Small sizes, data that need no file, and what a machine without CUDA, TransformerEngine and Apex
# lacks. All else is as Megatron-LM has it: dropout 0.1, clipping at 1.0, its schedule, its loader.
SIZES = """--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32
  --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 8 --train-iters 3"""
TRAINING = """--lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-warmup-iters 1 --weight-decay 0.1
  --log-interval 1 --eval-interval 1 --eval-iters 1"""
DATA = """--mock-data --tokenizer-type NullTokenizer --vocab-size 127
  --make-vocab-size-divisible-by 32"""
MACHINE = """--transformer-impl local --attention-backend unfused --distributed-backend gloo
  --use-cpu-initialization --no-gradient-accumulation-fusion --no-masked-softmax-fusion
  --no-persist-layer-norm --no-rope-fusion"""
COMMON = " ".join((SIZES, TRAINING, DATA, MACHINE)).split()

# Options of reference and candidate. `gpt` is what Megatron-LM builds if it is told nothing.
MODELS = {
    "gpt": (),
    "llama": tuple(
        """--swiglu --normalization RMSNorm --group-query-attention --num-query-groups 2
        --position-embedding-type rope --untie-embeddings-and-output-weights
        --disable-bias-linear""".split()
    ),
    "experts": tuple(
        """--num-experts 4 --moe-router-topk 2 --moe-aux-loss-coeff 0.01
        --moe-router-load-balancing-type aux_loss --disable-bias-linear""".split()
    ),
    "deep": ("--num-layers", "8"),
    # With warm-up the first step's learning rate is 0, and nothing is there to be gathered.
    "steady": ("--lr-warmup-iters", "0"),
}
DTYPES = {"fp32": (), "bf16": ("--bf16",)}
TP2 = ("--tensor-model-parallel-size", "2")
SP = ("--sequence-parallel",)
PP2 = ("--pipeline-model-parallel-size", "2")
CP2 = ("--context-parallel-size", "2")
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1".split()
SELECTIVE = "--recompute-granularity selective".split()
OVERLAPS = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather".split()
EP2 = ("--expert-model-parallel-size", "2")
# Its overlap frees what gloo still sends: two runs of the script alone differ.
VPP = """--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2
  --no-overlap-p2p-communication""".split()


@dataclass(frozen=True)
class Run:
    what: str
    ranks: int
    options: tuple[str, ...]
    dtype: str
    model: str = "gpt"
    bug: str = ""

    @property
    def name(self) -> str:
        words = [self.model, self.what, self.dtype]
        return ", ".join([*words, f"bug {self.bug}"] if self.bug else words)


RUNS = (
    Run("TP2+SP", 2, (*TP2, *SP), "bf16"),
    Run("PP2", 2, PP2, "bf16"),
    Run("DP2", 2, (), "bf16"),
    Run("CP2", 2, CP2, "bf16"),
    Run("TP2+SP, full recompute", 2, (*TP2, *SP, *FULL), "bf16"),
    Run("TP2+SP", 2, (*TP2, *SP), "bf16", bug="T11"),
    Run("DP2", 2, (), "bf16", bug="T4"),
    Run("CP2", 2, CP2, "bf16", bug="T12"),
    Run("TP2+SP", 2, (*TP2, *SP), "fp32"),
    Run("PP2", 2, PP2, "fp32"),
    Run("TP2", 2, TP2, "fp32", bug="T10"),
    Run("TP2+SP", 2, (*TP2, *SP), "fp32", bug="M7452-6"),
    Run("CP2", 2, CP2, "fp32"),
    Run("DP2, overlapped reduction", 2, ("--overlap-grad-reduce",), "fp32"),
    Run("TP2, selective recompute", 2, (*TP2, *SELECTIVE), "fp32"),
    Run("TP2+SP x PP2", 4, (*TP2, *SP, *PP2), "bf16", "llama"),
    Run("TP2 x CP2", 4, (*TP2, *CP2), "bf16", "llama"),
    Run("TP2", 2, TP2, "bf16", "llama", "OT8"),
    Run("DP2, distributed optimizer, both overlaps", 2, tuple(OVERLAPS), "bf16"),
    Run("DP2, distributed optimizer", 2, tuple(OVERLAPS[:1]), "bf16", "steady", "T8"),
    Run("EP2", 2, EP2, "fp32", "experts"),
    Run("EP2", 2, EP2, "fp32", "experts", "MG8"),
    Run("PP4 VPP2", 4, tuple(VPP), "fp32", "deep"),
    Run("PP4 VPP2", 4, tuple(VPP), "fp32", "deep", "OT8"),
)


def command(checkout: Path, run: Run, reference: bool) -> str:
    words = [str(checkout / "pretrain_gpt.py"), *COMMON, *MODELS[run.model], *DTYPES[run.dtype]]
    if not reference:
        words += run.options
    if run.bug and not reference:
        words = ["--bug", run.bug, *words]
    return runs.launch(1 if reference else run.ranks, "megatron_lm/on_cpu.py", *words)


def judged(run: Run, outcome: runs.Outcome) -> str:
    """What is wrong with the outcome, if anything is."""
    if not outcome.result:
        return f"no result (exit {outcome.code})"
    expected = bug_catalog.load(run.bug).EXPECT if run.bug else {"clean": True}
    return "; ".join(bug_catalog.disagreements(outcome.result, expected))


def row(run: Run, outcome: runs.Outcome, seconds: float) -> list[str]:
    result = outcome.result
    culprits = result.get("culprits") or [None]
    place = classes = "-"
    if culprits[0]:
        first = culprits[0]
        place = f"`{first['fqn']}`, {first['direction']}, {first['stage']}"
        classes = " ".join(why["class"] for why in first["classes"]) or "none"
    verdict = result.get("verdict", "none")
    headroom = worst(result, "real") if result else "-"
    cells = [run.name, str(run.ranks), verdict, str(result.get("coverage", {}).get("compared", 0))]
    return [*cells, headroom, place, classes, f"{seconds:.0f}"]


HEADER = """# Megatron-LM's own script

Written by `make real MEGATRON_LM=path`: `pretrain_gpt.py` of Megatron-LM at tag core_v0.16.1,
unchanged and from its own checkout, each run compared with one process of the same model. Options
are its defaults (dropout 0.1, clipping at 1.0, its loader) with an evaluation after each step,
but for small sizes, mock data, and what a machine without CUDA and TransformerEngine lacks;
`llama` has SwiGLU, RMSNorm, grouped queries, rotary positions, an output layer of its own and no
biases; `experts` has four of them, two a token, with an auxiliary loss; `deep` has eight layers;
`steady` has no warm-up.
Virtual stages run without overlap of their communication, which frees what gloo still sends: two
runs of the script by itself differ then. `zoo/megatron_lm/` is what lets the script run on a CPU.
Dropout is turned off by `ttrace`.
Headroom is error / bound of the worst tensor of the run itself: at most 1 in a clean run. Bugs are
those of [the zoo](../../zoo/README.md). Seconds are those of the candidate's launch, its legs and
the check, on two cores that did much else; references are shared.

"""
COLUMNS = (
    "run", "ranks", "verdict", "compared", "headroom", "first culprit", "classes",
    "seconds",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="runs whose name contains one of these")
    parser.add_argument("--megatron-lm", type=Path, required=True, help="a checkout")
    parser.add_argument("--missing", action="store_true", help="only those that have no row yet")
    parser.add_argument("--keep", type=Path, help="folder for references, used again if there")
    options = parser.parse_args()
    checkout = options.megatron_lm.resolve()
    table = RowTable(TABLE, HEADER, COLUMNS, [run.name for run in RUNS])
    bad = []
    runs.TIMEOUT_S = 3600
    with tempfile.TemporaryDirectory(prefix="ttrace-real-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=True)
        for run in RUNS:
            if not any(word.lower() in run.name.lower() for word in options.names or [""]):
                continue
            if run.name in table.rows and options.missing:
                continue
            reference = folder / f"{run.model}-{run.dtype}"
            if not reference.exists():
                recorded = runs.record_reference(reference, command(checkout, run, True))
                if recorded.code != 0:
                    print(f"{run.name}: the reference failed\n{recorded.text}", file=sys.stderr)
                    return 2
            out = folder / "report"
            begin = time.monotonic()
            outcome = runs.diff(out, reference, command(checkout, run, False))
            cells = row(run, outcome, time.monotonic() - begin)
            wrong = judged(run, outcome)
            shutil.rmtree(out, ignore_errors=True)
            if outcome.result:
                table.set(cells)
            print(" | ".join(cells), f"  <-- {wrong}" if wrong else "", flush=True)
            if wrong:
                bad.append(run.name)
                print(outcome.text, flush=True)
    print(f"real: not as promised: {'; '.join(bad)}" if bad else "real: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
