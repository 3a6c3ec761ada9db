"""Each mutant of plain loops changes what it says, from its iteration on, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from launch_ranks import launcher
from mutation.loops.loop import PlainLoop
from mutation.loops.measure import Measure, changed
from mutation.loops.mutant import FAULTS, LoopMutant, read_mutant
from mutation.loops.options import LoopOptions
from mutation.loops.plant import plant_mutant

FIELDS = {"name": "loss weight", "since": 1, "ranks": "all", "size": 0.5, "seed": 3}
STEPS = 3
# The first that has a place for a mechanism is where it is planted. Each clips more than it needs.
LOOPS = (
    LoopOptions("language", accumulate=2, clip=0.2),
    LoopOptions("encoder", "adam", "bf16", accumulate=2, clip=0.2),
    LoopOptions("images", "sgd", accumulate=2),
    LoopOptions("perceptron", "sgd", "fp16", accumulate=2),
    LoopOptions("perceptron", "adamw", "fp16", clip=0.01),
)
ON_RANKS = (
    LoopOptions("language", accumulate=2, hook=True, ranks=2),
    LoopOptions("images", "sgd", hook=True, ranks=2),
    LoopOptions("language", tensor=True, ranks=2),
    LoopOptions("language", tensor=True, sequence=True, ranks=2),
)


def run(options: LoopOptions, mutant: LoopMutant | None) -> tuple[Measure, list[str]]:
    loop = PlainLoop(options)
    blamed = [] if mutant is None else plant_mutant(loop, mutant)
    measure = Measure(loop)
    for _ in range(STEPS):
        loop.step()
    return measure, blamed


_HONEST: dict[LoopOptions, Measure] = {}


def effect(name: str, loops: tuple[LoopOptions, ...]) -> dict[str, Any]:
    """What the mutant changes in the iterations before it, and in its first one."""
    options = next(options for options in loops if FAULTS[name].possible(options))
    if options not in _HONEST:
        _HONEST[options] = run(options, None)[0]
    measure, blamed = run(options, LoopMutant(**{**FIELDS, "name": name}))
    kinds = ("gradients", "after")
    steps = [
        {kind: changed(right, wrong, kind) for kind in kinds}
        for right, wrong in zip(_HONEST[options].steps, measure.steps, strict=True)
    ]
    return {"blamed": blamed, "steps": steps}


def check(name: str, found: dict[str, Any]) -> None:
    before, first, second = found["steps"]
    assert before == {"gradients": [], "after": []}
    at = first if first != before else second  # what a step leaves may show in the next one
    assert at["gradients"] or at["after"], "it changes nothing"
    family = name.partition(" ")[0]
    if family == "optimizer" or name == "tensor stale":
        assert not first["gradients"]
        shown = at["after"]
    elif family == "ddp":
        shown = at["gradients"] or at["after"]
    else:
        return
    others = [x for x in shown if not any(fnmatchcase(x, p) for p in found["blamed"])]
    assert not others


def of_loops(loops: tuple[LoopOptions, ...]) -> list[str]:
    return [n for n, fault in FAULTS.items() if any(fault.possible(o) for o in loops)]


@pytest.mark.parametrize("name", of_loops(LOOPS))
def test_a_mutant_changes_what_it_says_and_nothing_before(name: str) -> None:
    check(name, effect(name, LOOPS))


ONLY_ON_RANKS = [name for name in of_loops(ON_RANKS) if name not in of_loops(LOOPS)]


@pytest.fixture(scope="module")
def effects_on_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of both ranks, by name."""
    out = tmp_path_factory.mktemp("effects") / "rank"
    words = [*launcher(2), __file__, str(out), *ONLY_ON_RANKS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(Path(f"{out}-{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", ONLY_ON_RANKS)
def test_a_mutant_of_ranks_does_too(name: str, effects_on_ranks: list[dict[str, Any]]) -> None:
    # On one rank at least; where both keep to one value, on both.
    found = [of_rank[name] for of_rank in effects_on_ranks]
    steps = [
        {kind: sorted({n for f in found for n in f["steps"][k][kind]}) for kind in f0}
        for k, f0 in enumerate(found[0]["steps"])
    ]
    check(name, {"blamed": found[0]["blamed"], "steps": steps})


def test_every_mechanism_is_planted_in_one_of_these_loops() -> None:
    assert {*of_loops(LOOPS), *of_loops(ON_RANKS)} == set(FAULTS)


def test_an_honest_loop_repeats_itself() -> None:
    one, other = (run(LOOPS[2], None)[0].steps for _ in range(2))
    assert all(not changed(a, b, kind) for a, b in zip(one, other, strict=True) for kind in a)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "loss of memory"}, "no mutant of a plain loop is called loss of memory"),
        ({"ranks": "some"}, "one or all"),
        ({"since": -1}, "counted from 0"),
    ],
)
def test_words_without_meaning_are_refused(tmp_path: Path, change: dict, message: str) -> None:
    path = tmp_path / "mutant.json"
    path.write_text(json.dumps({**FIELDS, **change}))
    with pytest.raises(ValueError, match=re.escape(message)):
        read_mutant(str(path))


def test_a_loop_without_such_a_place_is_refused() -> None:
    mutant = LoopMutant(**{**FIELDS, "name": "ddp summed"})
    with pytest.raises(ValueError, match="ddp summed has no place in this loop"):
        plant_mutant(PlainLoop(LOOPS[0]), mutant)


def test_the_words_of_a_loop_give_its_options() -> None:
    import argparse

    from mutation.loops.options import add_arguments, options_of

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for options in (*LOOPS, *ON_RANKS):
        parsed = parser.parse_args(replace(options, ranks=1).words())
        assert asdict(options_of(parsed, options.ranks)) == asdict(options)


def main() -> None:
    """One rank of those that ONLY_ON_RANKS need."""
    out, *names = sys.argv[1:]
    dist.init_process_group("gloo")
    found = {name: effect(name, ON_RANKS) for name in names}
    Path(f"{out}-{os.environ['RANK']}").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
