"""PL14: the end of a bucket of gradients is not reduced.

The buffer is longer than its parameters by some padding. Cut off at the wrong end, the last
parameters of the bucket, the first of the model, keep a rank's own gradients.

Needs: DP.
"""

from __future__ import annotations

ID = "PL14"
TITLE = "DP: the end of a bucket is not reduced"
NPROC = 2
FLAGS: list[str] = []
EXPECT = {
    "fqn": [r"embedding\.word_embeddings\.weight", r".+\.(weight|bias)"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P"],
}


def inject() -> None:
    """The last sixteenth of each bucket is left out."""
    from megatron.core.distributed import param_and_grad_buffer

    from source_edit import edited

    kind = param_and_grad_buffer._ParamAndGradBucketGroup
    kind.start_grad_sync = edited(
        kind.start_grad_sync,
        "bucket.grad_data, op=reduce_op, group=communication_group, async_op=async_op",
        "bucket.grad_data[: bucket.grad_data.numel() // 16 * 15],"
        " op=reduce_op, group=communication_group, async_op=async_op",
    )
