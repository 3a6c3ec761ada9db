"""T12: attention under context parallelism keeps only its own part of the gradients of K and V.

Each rank's queries attend to the keys and values of all ranks, so the gradient of a key is a sum
over the ranks. Here each rank keeps the slice of its own keys and drops what it computed for the
others. Forward is clean, and the residual path hides most of it one layer further down.

Source: Megatron-LM issue 1464, TransformerEngine pull request 1557. Needs: CP.
"""

from __future__ import annotations

from typing import Any

ID = "T12"
TITLE = "CP: gradients of K and V not summed over the ranks"
SOURCE = "Megatron-LM issue 1464; TransformerEngine pull request 1557"
NPROC = 2
FLAGS = ["--cp", "2"]
EXPECT = {
    "fqn": [r"decoder\.layers\.3\.self_attention\.core_attention"],
    "affected": [r"decoder\.layers\.\d+\.self_attention\.core_attention"],
    "direction": "backward",
    "stage": "compute",
    "classes": ["P"],
}


def inject() -> None:
    """The gather of K and V gets a backward that slices instead of reducing and scattering."""
    from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region

    from megatron_cpu import cp_attention

    def gather_with_sliced_gradient(tensor: Any, group: Any) -> Any:
        return gather_from_sequence_parallel_region(
            tensor.contiguous(), tensor_parallel_output_grad=False, group=group
        )

    cp_attention.gather_sequence = gather_with_sliced_gradient
