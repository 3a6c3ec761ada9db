"""T7: with TP the scale of FP8 is that of a rank's own part of the tensor.

Ranks that hold parts of one tensor must round them by one scale: the largest value is reduced over
them. Reduced over the data-parallel ranks instead, every tensor-parallel rank has its own, and
what it rounds before the gather is not what the others round.

Source: arXiv 2506.09280, bug 7 (there in TransformerEngine). Needs: TP, FP8.
"""

from __future__ import annotations

ID = "T7"
TITLE = "TP: each rank has its own FP8 scale"
SOURCE = "arXiv 2506.09280, bug 7"
NPROC = 2
SHARED_FLAGS = ["--fake-fp8"]
FLAGS = ["--tp", "2", "--sp", *SHARED_FLAGS]
EXPECT = {
    # The first linear of the model. Its input is cut by rows, its weight by columns.
    "fqn": [r"decoder\.layers\.0\.self_attention\.linear_qkv"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["D", "W"],
    # Every other linear asks the same group: each is at fault by itself.
    "affected": [
        r"decoder\.layers\.\d+\.(self_attention\.linear_proj|mlp\.linear_fc[12])",
    ],
}


def inject() -> None:
    """The largest value is asked of another group."""
    from megatron.core import parallel_state

    from gpt import fake_fp8

    fake_fp8.group_of_scale = parallel_state.get_data_parallel_group
