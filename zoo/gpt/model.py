"""The model of `train_gpt.py`: its configuration, layers, chunks, and data-parallel wrapper."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from megatron.core.transformer import (
    MLATransformerConfig,
    TransformerConfig,
    transformer_block,
)
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

import other_layers
from gpt.versions import begin_chunk, is_first_stage, is_last_stage, known_to
from gpt.weights import draw_by_name
from megatron_cpu.latent_attention import LatentDotProductAttention

# As Megatron-LM's: buckets of a real model's size. One bucket here, unless --bucket-size is given.
BUCKET_SIZE = 40_000_000


def build_config(args: argparse.Namespace) -> TransformerConfig:
    kind = MLATransformerConfig if args.mla else TransformerConfig
    return kind(
        num_layers=args.layers,
        hidden_size=args.hidden,
        ffn_hidden_size=args.ffn,
        num_attention_heads=args.heads,
        # Latent attention has the keys of all heads.
        num_query_groups=args.heads if args.mla else args.kv_groups,
        gated_linear_unit=args.gated,
        add_bias_linear=args.linear_bias and not args.experts,
        activation_func=torch.nn.functional.silu if args.gated else torch.nn.functional.gelu,
        hidden_dropout=args.dropout,
        attention_dropout=args.dropout,
        tensor_model_parallel_size=args.tp,
        context_parallel_size=args.cp,
        pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.vpp if args.vpp > 1 else None,
        sequence_parallel=args.sp,
        bf16=args.bf16,
        fp16=args.fp16,
        params_dtype=args.dtype,
        pipeline_dtype=args.dtype,
        **_of_attention(args),
        **_of_experts(args),
        **_of_recomputation(args),
        mtp_num_layers=args.mtp,
        mtp_loss_scaling_factor=0.1,  # older releases have no default
        init_method_std=args.init_std,
        calculate_per_token_loss=args.per_token_loss,
        deallocate_pipeline_outputs=True,
        # Neither fused kernels nor, in gloo, batched point-to-point calls. Weights are drawn on the
        # host, also those of a GPU.
        use_cpu_initialization=True,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=args.fused_wgrad,
        persist_layer_norm=False,
        batch_p2p_comm=False,
        batch_p2p_sync=False,
    )


def _of_attention(args: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = dict(
        qk_layernorm=args.qk_layernorm,
        apply_query_key_layer_scaling=args.qk_layer_scaling,
    )
    # Older versions lack these and compute what they default to.
    if args.softmax != "vanilla":
        options.update(softmax_type=args.softmax)
    if args.window:
        options.update(window_size=(args.window, 0))
    if args.window_skip:
        options.update(window_attn_skip_freq=args.window_skip)
    if args.mla:
        head = args.hidden // args.heads
        options.update(
            q_lora_rank=args.query_rank or None,
            kv_lora_rank=args.hidden // 2,
            qk_head_dim=head,
            qk_pos_emb_head_dim=head // 2,
            v_head_dim=head,
            rope_type="rope",
        )
    return options


def _of_experts(args: argparse.Namespace) -> dict[str, Any]:
    if not args.experts:
        return {}
    gate = {"moe_shared_expert_gate": True} if args.shared_expert_gate else {}
    return dict(
        **gate,  # older versions have none
        num_moe_experts=args.experts,
        expert_model_parallel_size=args.ep,
        expert_tensor_parallel_size=args.etp or args.tp,
        moe_router_topk=args.topk,
        moe_token_dispatcher_type=args.dispatcher,
        moe_shared_expert_intermediate_size=args.shared_expert_ffn,
        moe_router_load_balancing_type=args.aux_loss or "none",
        moe_aux_loss_coeff=args.aux_loss_coeff if args.aux_loss else 0.0,
        moe_z_loss_coeff=args.z_loss,
        moe_input_jitter_eps=args.router_jitter,
        moe_router_score_function="sigmoid" if args.expert_bias else args.router_scores,
        moe_router_pre_softmax=args.router_pre_softmax,
        moe_router_enable_expert_bias=args.expert_bias,
        moe_layer_freq=args.moe_layer_freq,
        moe_expert_capacity_factor=args.capacity_factor,
        moe_pad_expert_input_to_capacity=args.pad_to_capacity,
    )


def _of_recomputation(args: argparse.Namespace) -> dict[str, Any]:
    if args.recompute_modules:
        return dict(recompute_granularity="selective", recompute_modules=args.recompute_modules)
    if args.recompute:
        return dict(
            recompute_granularity="full",
            recompute_method="uniform",
            recompute_num_layers=args.recompute_layers,
        )
    return {}


def _layer_specs(
    args: argparse.Namespace, config: TransformerConfig, vp_stage: int | None
) -> tuple[Any, list[ModuleSpec]]:
    """What GPTModel is built of, and the specifications of single layers in it."""
    if not args.experts:
        layer = get_gpt_layer_local_spec(
            qk_layernorm=args.qk_layernorm, multi_latent_attention=args.mla
        )
        return layer, [layer]
    number = known_to(get_gpt_decoder_block_spec, vp_stage=vp_stage)
    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False, **number)
    # Layers of one kind share a specification.
    return block, list({id(layer): layer for layer in block.layer_specs}.values())


def build_model(
    args: argparse.Namespace, config: TransformerConfig
) -> list[DistributedDataParallel]:
    """The chunks of this pipeline stage: one, or one for each of its virtual stages."""
    numbers = range(args.vpp) if args.vpp > 1 else [None]
    chunks: list[torch.nn.Module] = [_build_chunk(args, config, number) for number in numbers]
    chunks = [chunk.cuda() for chunk in chunks]
    if args.bf16 or args.fp16:
        chunks = [Float16Module(config, chunk) for chunk in chunks]
    for chunk in chunks:
        if args.freeze:
            freeze(chunk, args.freeze)
        if args.compile:
            compile_modules(chunk, args.compile)
    return [
        DistributedDataParallel(
            config,
            DistributedDataParallelConfig(
                grad_reduce_in_fp32=not args.grad_reduce_in_bf16,
                use_distributed_optimizer=args.distributed_optimizer,
                overlap_grad_reduce=args.overlap_grad_reduce,
                overlap_param_gather=args.overlap_param_gather,
                bucket_size=args.bucket_size or BUCKET_SIZE,
            ),
            chunk,
            # Later chunks' communication is hidden behind computation anyway.
            disable_bucketing=number > 0,
        )
        for number, chunk in enumerate(chunks)
    ]


def _build_chunk(
    args: argparse.Namespace, config: TransformerConfig, vp_stage: int | None
) -> GPTModel:
    begin_chunk(vp_stage)
    spec, layers = _layer_specs(args, config, vp_stage)
    for layer in layers:
        other_layers.replace(layer, args.linears, args.norm, args.feed_forward)
        if args.fake_fp8:
            other_layers.replace_linears_by_fp8(layer)
        if args.mla:
            layer.submodules.self_attention.submodules.core_attention = LatentDotProductAttention
        if args.cp > 1:
            # Older versions lack what it needs.
            from megatron_cpu.cp_attention import ContextParallelDotProductAttention

            attention = layer.submodules.self_attention.submodules
            attention.core_attention = ContextParallelDotProductAttention
    if args.linears == "te-fused":
        from transformer_engine_layers import TENorm

        # What the block takes where its specification names no other.
        transformer_block.LayerNormImpl = TENorm
        if isinstance(spec, TransformerBlockSubmodules):
            spec.layer_norm = TENorm
    further = {}
    if args.mtp:
        further["mtp_block_spec"] = get_gpt_mtp_block_spec(
            config,
            layers[-1],
            use_transformer_engine=False,
            **known_to(get_gpt_mtp_block_spec, vp_stage=vp_stage),
        )
    model = GPTModel(
        config,
        spec,
        vocab_size=args.vocab,
        max_sequence_length=args.seq,
        pre_process=is_first_stage(vp_stage),
        post_process=is_last_stage(vp_stage),
        # Where nothing is gathered the loss would be computed in place of a view, an error in fp32.
        parallel_output=not args.gathered_logits or args.tp == 1,
        share_embeddings_and_output_weights=args.tied,
        position_embedding_type="rope" if args.positions == "rope" else "learned_absolute",
        **known_to(GPTModel, vp_stage=vp_stage),
        **further,
    )
    if args.weights_by_name or args.experts:
        draw_by_name(model, config, args.seed, vp_stage)
    if args.label_smoothing:
        model.compute_language_model_loss = partial(smoothed_loss, args.label_smoothing)
    return model


def smoothed_loss(smoothing: float, labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """GPTModel's own, with the argument that it does not hand on."""
    loss = vocab_parallel_cross_entropy(
        logits.float(), labels.transpose(0, 1).contiguous(), label_smoothing=smoothing
    )
    return loss.transpose(0, 1).contiguous()


def compile_modules(model: torch.nn.Module, name: str) -> None:
    for parent in list(model.modules()):
        child = parent._modules.get(name)
        if child is not None:
            setattr(parent, name, torch.compile(child, backend="eager"))


def freeze(model: torch.nn.Module, name: str) -> None:
    """Takes the parameters of all modules that are called `name` out of training."""
    frozen = [module for path, module in model.named_modules() if path.split(".")[-1] == name]
    if not frozen and parallel_state.get_pipeline_model_parallel_world_size() == 1:
        raise SystemExit(f"--freeze: no module is called {name!r}")
    for module in frozen:
        module.requires_grad_(False)
