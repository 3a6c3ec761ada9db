"""Runs a script of a Megatron-LM checkout, unchanged, on CPUs with gloo.

    torchrun --nproc-per-node 2 zoo/megatron_lm/on_cpu.py CHECKOUT/pretrain_gpt.py ARGUMENTS...
    torchrun --nproc-per-node 2 zoo/megatron_lm/on_cpu.py --bug T11 CHECKOUT/pretrain_gpt.py ...

`--bug` names bugs of zoo/bugs, with commas. Nothing is written into the checkout, whose own
megatron.core is used.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main() -> None:
    arguments = sys.argv[1:]
    bugs = []
    if arguments[0] == "--bug":
        bugs = arguments[1].split(",")
        arguments = arguments[2:]
    script = Path(arguments[0]).resolve()
    here = Path(__file__).resolve().parent
    sys.argv = [str(script), *arguments[1:]]
    sys.path[0] = str(script.parent)
    sys.path += [str(here), str(here.parent)]

    import training_gaps

    training_gaps.enable()

    import bug_catalog

    for name in bugs:
        bug_catalog.load(name).inject()
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
