"""The auxiliary loss over the global batch is multiplied by the data-parallel size.

It is divided by the tokens of all data-parallel ranks, and its gradient is averaged over these
ranks again.
"""

from __future__ import annotations


def apply() -> None:
    from megatron.core.transformer.moe.router import TopKRouter

    from source_edit import edited

    TopKRouter._apply_global_aux_loss = edited(
        TopKRouter._apply_global_aux_loss,
        "moe_aux_loss_coeff=global_aux_loss_coeff,\n",
        "moe_aux_loss_coeff=global_aux_loss_coeff"
        " * self.tp_dp_cp_group.size() / self.tp_cp_group.size(),\n",
    )
