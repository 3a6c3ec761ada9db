"""Gradients of the rotary part of latent attention's keys, which the heads of all tensor-parallel
ranks share, are summed over these ranks."""

from __future__ import annotations


def apply() -> None:
    from megatron.core.transformer.multi_latent_attention import MLASelfAttention

    from source_edit import edited

    place = "# todo add assert about fusions and caching\n"
    MLASelfAttention.get_query_key_value_tensors = edited(
        MLASelfAttention.get_query_key_value_tensors,
        place,
        "k_pos_emb = tensor_parallel.copy_to_tensor_model_parallel_region(k_pos_emb)\n",
    )
