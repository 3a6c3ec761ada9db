"""PL8: the bias of an expert grows where it has too many tokens.

After each step the bias of experts with many tokens is made smaller. With the wrong sign they get
more and more. The bias is no parameter: no gradient knows of it.

Needs: experts, expert bias, the second step.
"""

from __future__ import annotations

ID = "PL8"
TITLE = "Router: the expert bias moves in the wrong direction"
NPROC = 2
SHARED_FLAGS = ["--experts", "4", "--expert-bias"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.router"],
    # The bias itself is not recorded: its router is the first that uses it.
    "direction": "forward",
    "stage": "compute",
    "iteration": 1,
    "classes": [],
}


def inject() -> None:
    """A minus."""
    import sys

    import megatron.core.distributed.finalize_model_grads  # noqa: F401

    from source_edit import edited

    # The package exports a function under its module's name, so ask for the module itself.
    module = sys.modules["megatron.core.distributed.finalize_model_grads"]
    module.get_updated_expert_bias = edited(
        module.get_updated_expert_bias,
        "expert_bias + torch.sign(offset)",
        "expert_bias - torch.sign(offset)",
    )
