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
    from torch.distributed.tensor import DTensor, Replicate

    redistribute = DTensor.redistribute

    def skipping(self, *args, **kwargs):
        pending = any(placement.is_partial() for placement in self.placements)
        if pending and self.requires_grad:
            whole = [Replicate() if p.is_partial() else p for p in self.placements]
            own = self.to_local()
            self = DTensor.from_local(own, self.device_mesh, whole, run_check=False)
        return redistribute(self, *args, **kwargs)

    DTensor.redistribute = skipping


bug, script = sys.argv[1:3]
globals()[bug]()
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
runpy.run_path(script, run_name="__main__")
