"""Faults planted in a plain torch loop, by mechanism, at places drawn from a seed.

`train_loop.py --mutant FILE` names one mutant. It is there from the iteration on that it says, in
the loop's own parts, in its modules, or in what its optimizer or DistributedDataParallel calls, and
it is put there before anything is attached: a tool that runs the model or the loop's calls again
meets the same fault. Where it was put is written to `FILE.place`.

Whether it changes anything is measured by two runs without a tool, one with it and one without
(`--measure`), so that nothing has to be computed twice where a tool looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mutation.loops.loop import PlainLoop


def plant(loop: PlainLoop, path: str) -> None:
    """To be called once, when the loop is built and before anything is attached to it."""
    # Not at the top: whoever writes mutants down needs none of the loop.
    from mutation.loops.plant import plant_file

    plant_file(loop, path)
