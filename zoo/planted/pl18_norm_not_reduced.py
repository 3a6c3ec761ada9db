"""PL18: gradients are clipped by the norm of a rank's own part.

The squares are summed over all ranks with parts of the model before the root is taken. Without that
each tensor-parallel rank clips by another factor, and what they hold copies of drifts apart.

Needs: TP, gradients above the clipping norm.
"""

from __future__ import annotations

ID = "PL18"
TITLE = "Clipping by a norm that was not reduced"
NPROC = 2
FLAGS = ["--tp", "2", "--sp"]
EXPECT = {
    "fqn": [r"grad_norm"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["G"],
}


def inject() -> None:
    """The sum over ranks is left out."""
    from megatron.core.optimizer import clip_grads, optimizer

    from source_edit import edited

    optimizer.get_grad_norm_fp32 = edited(
        clip_grads.get_grad_norm_fp32,
        "total_norm, op=torch.distributed.ReduceOp.SUM, group=grad_stats_parallel_group",
        "total_norm.clone(), op=torch.distributed.ReduceOp.SUM, group=grad_stats_parallel_group",
    )
