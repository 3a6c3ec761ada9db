"""A micro-batch's loss is divided by the tokens of all context-parallel ranks that share it, not by
each rank's own: then averaged over these ranks, it is the mean over all tokens."""

from __future__ import annotations


def apply() -> None:
    from megatron.core.pipeline_parallel import schedules

    from source_edit import edited

    schedules.forward_step_calc_loss = edited(
        schedules.forward_step_calc_loss,
        "output_tensor /= torch.clamp(num_tokens, min=1)\n",
        "of_all = num_tokens.clone(); "
        "torch.distributed.all_reduce(of_all, group=parallel_state.get_context_parallel_group()); "
        "output_tensor *= cp_group_size / torch.clamp(of_all, min=1)\n",
    )
