"""Runs a script with a fault in what it uses.

torchrun --nproc-per-node 2 zoo/loops/with_bug.py local_gradients zoo/loops/nanogpt.py
"""

import os
import runpy
import sys


def local_gradients():
    """DistributedDataParallel never averages: every rank trains on its own gradients."""
    from torch.nn.parallel import DistributedDataParallel

    make = DistributedDataParallel.__init__

    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self.__class__ = type("DistributedDataParallel", (DistributedDataParallel,), {
            "require_backward_grad_sync": property(lambda self: False, lambda self, value: None)
        })  # fmt: skip

    DistributedDataParallel.__init__ = init


def unsummed_row():
    """A linear that is cut by rows hands on its own term of the sum."""
    from torch.distributed.tensor import DTensor, Partial

    redistribute = DTensor.redistribute

    def skipping(self, *args, **kwargs):
        result = redistribute(self, *args, **kwargs)
        if not self.requires_grad or not any(isinstance(p, Partial) for p in self.placements):
            return result
        return result * 1.0 if result.placements == self.placements else result / 2

    DTensor.redistribute = skipping


bug, script = sys.argv[1:3]
globals()[bug]()
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
runpy.run_path(script, run_name="__main__")
