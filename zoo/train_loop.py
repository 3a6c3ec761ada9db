"""A plain torch loop in which faults are planted: four models, with and without
DistributedDataParallel or DTensors, accumulation, autocast and clipping.

    python zoo/train_loop.py --model images
    torchrun --nproc-per-node 2 zoo/train_loop.py --accumulate 2 --mutant FILE
"""

from __future__ import annotations

import argparse
import os

import torch.distributed as dist

from mutation.loops import plant
from mutation.loops.loop import PlainLoop
from mutation.loops.measure import Measure
from mutation.loops.options import add_arguments, options_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--mutant", metavar="FILE", help="a fault (mutation/loops)")
    parser.add_argument("--measure", metavar="FILE", help="what each iteration did, for .rank-N")
    parsed = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    loop = PlainLoop(options_of(parsed, ranks))
    if parsed.mutant:
        plant(loop, parsed.mutant)
    measure = Measure(loop) if parsed.measure else None
    loop.attach()
    for _ in range(parsed.steps):
        loop.step()
    if measure is not None:
        measure.write(parsed.measure)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
