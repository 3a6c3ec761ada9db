"""A router's z-loss is the mean over the tokens that are no padding of all ranks that share a
micro-batch, not the mean of these ranks' means."""

from __future__ import annotations


def apply() -> None:
    from megatron.core.transformer.moe import router

    from source_edit import edited

    router.TopKRouter.apply_z_loss = edited(
        router.TopKRouter.apply_z_loss,
        "z_loss = z_loss_func(logits, moe_z_loss_coeff, padding_mask=padding_mask)\n",
        "valid = logits.new_ones(1) if padding_mask is None else (~padding_mask).sum().float(); "
        "total = valid.clone(); "
        "torch.distributed.all_reduce(total, group=self.tp_cp_group); "
        "share = valid * self.tp_cp_group.size() / total; "
        "z_loss = z_loss_func(logits, moe_z_loss_coeff, padding_mask=padding_mask) * share\n",
    )
