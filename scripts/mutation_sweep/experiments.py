"""What every iteration of a launch was: clean, a mutant, or one that changed no number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mutation_sweep.judge import happened, in_order
from mutation_sweep.launch import Sweep, read_log
from mutation_sweep.plan import Launch

# The output layer's weight is the embedding's where they are tied, and is called so.
_TIED, _SHARED = "output_layer.weight", "embedding.word_embeddings.weight"


def experiments(
    sweep: Sweep, launch: Launch
) -> Iterator[tuple[int, str, dict[str, Any] | None, list[str]]]:
    """(iteration; clean, mutant or nothing; the mutant that happened; the modules in order)."""
    log = read_log(sweep, launch)
    modules = in_order(log)
    planned = {mutant.iteration for mutant in launch.mutants}
    for iteration in range(sweep.iterations):
        mutant = happened(log, iteration)
        if mutant is None:
            yield iteration, "nothing" if iteration in planned else "clean", None, modules
            continue
        if "--tied" in launch.model and mutant["site"]["fqn"] == _TIED:
            mutant["site"]["fqn"] = _SHARED
        mutant["bf16"] = launch.bf16
        mutant["experts"] = "--experts" in launch.model
        yield iteration, "mutant", mutant, modules
