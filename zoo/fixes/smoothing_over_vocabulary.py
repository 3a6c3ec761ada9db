"""Label smoothing takes the mean over the whole vocabulary, not over a rank's part of it."""

from __future__ import annotations


def apply() -> None:
    from megatron.core.tensor_parallel import cross_entropy

    from source_edit import edited

    loss = cross_entropy._VocabParallelCrossEntropy
    forward = edited(
        loss.forward,
        "vocab_size = exp_logits.size(-1)\n",
        "vocab_size = exp_logits.size(-1) * world_size\n",
        "mean_log_probs = log_probs.mean(dim=-1)\n",
        "mean_log_probs = log_probs.sum(dim=-1) / vocab_size; "
        "torch.distributed.all_reduce(mean_log_probs, group=get_tensor_model_parallel_group())\n",
    )
    loss.forward = forward
