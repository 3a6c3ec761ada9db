"""With `calculate_per_token_loss` a router's auxiliary losses are multiplied by the tokens of all
ranks that share a micro-batch, not by those of one of them.

All gradients are divided by the tokens of the whole batch at the end, so that a loss that is a mean
already has to be multiplied by the tokens that its mean was over.
"""

from __future__ import annotations


def apply() -> None:
    from megatron.core.transformer.moe.router import TopKRouter

    from source_edit import edited

    TopKRouter.attach_and_log_load_balancing_loss = edited(
        TopKRouter.attach_and_log_load_balancing_loss,
        "aux_loss * num_tokens",
        "aux_loss * num_tokens * self.tp_cp_group.size()",
    )
    TopKRouter.apply_z_loss = edited(
        TopKRouter.apply_z_loss,
        "z_loss * num_tokens",
        "z_loss * num_tokens * self.tp_cp_group.size()",
    )
