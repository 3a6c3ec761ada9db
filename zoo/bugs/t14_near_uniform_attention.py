"""T14: no bug: with near-uniform attention the gradient of the queries is ill-conditioned.

Softmax's backward subtracts from each entry the mean of its row. At initialisation with small
weights all scores are nearly equal, the difference is made of cancelled digits, and the gradient of
the queries differs by tens of per cent between two right kernels. This was reported as a wrong
gradient of fused attention. A run of this kind must not be called faulty.

Source: Megatron-LM issue 1503, TransformerEngine issue 1615. Needs: any topology.
"""

from __future__ import annotations

ID = "T14"
TITLE = "Control: near-uniform attention, gradient of the queries is ill-conditioned"
SOURCE = "Megatron-LM issue 1503; TransformerEngine issue 1615"
NPROC = 2
SHARED_FLAGS = ["--init-std", "0.002"]
FLAGS = ["--tp", "2", *SHARED_FLAGS]
EXPECT = {"clean": True}


def inject() -> None:
    """Nothing: the flags are all of it."""
