"""Trains a tiny GPT on real megatron-core, on CPUs, in any dense parallel topology.

A plain trainer in the habits of Megatron-LM's `pretrain_gpt.py`; it knows nothing of a tracer.

    python zoo/train_gpt.py
    torchrun --nproc-per-node 4 zoo/train_gpt.py --tp 2 --sp --pp 2
    torchrun --nproc-per-node 2 zoo/train_gpt.py --tp 2 --bug t1_embedding_mask
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from functools import partial

# Before torch is imported: it reads the number of threads then.
if "--compile" not in sys.argv:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import megatron_cpu

megatron_cpu.enable()

import numpy
import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.rerun_state_machine import (
    RerunDataIterator,
    RerunMode,
    get_rerun_state_machine,
    initialize_rerun_state_machine,
)
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module
from megatron.core.utils import get_batch_on_this_cp_rank

import bug_catalog
import mutation
import other_layers
from state_digest import parameter_digest, print_line, random_digest
from synthetic_tokens import PretrainingSampler, SyntheticTokens


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flag = argparse.BooleanOptionalAction

    topology = parser.add_argument_group("topology (what remains of the processes is dp)")
    topology.add_argument("--tp", type=int, default=1)
    topology.add_argument("--cp", type=int, default=1)
    topology.add_argument("--pp", type=int, default=1)
    topology.add_argument("--sp", action="store_true", help="sequence parallel, within tp")

    model = parser.add_argument_group("model")
    model.add_argument("--layers", type=int, default=4)
    model.add_argument("--hidden", type=int, default=64)
    model.add_argument("--heads", type=int, default=4)
    model.add_argument("--kv-groups", type=int, default=2)
    model.add_argument("--ffn", type=int, default=128)
    model.add_argument("--seq", type=int, default=32)
    model.add_argument("--vocab", type=int, default=128)
    model.add_argument("--gated", action=flag, default=True, help="SwiGLU instead of GELU")
    model.add_argument("--tied", action=flag, default=True, help="embedding is the LM head")
    model.add_argument("--dropout", type=float, default=0.0)
    model.add_argument("--positions", choices=("rope", "learned"), default="rope")
    model.add_argument("--qk-layernorm", action="store_true", help="normalise queries and keys")
    model.add_argument(
        "--window", type=int, default=0, metavar="N", help="attend to N tokens back (0: to all)"
    )
    model.add_argument(
        "--window-skip", type=int, metavar="K", help="every K-th layer attends to all tokens"
    )
    model.add_argument(
        "--init-std", type=float, default=0.02, help="small: attention is near uniform at first"
    )
    model.add_argument(
        "--freeze", metavar="NAME", help="do not train modules of this name, as linear_fc1"
    )
    model.add_argument(
        "--linears", choices=("core", "te"), default="core", help="te: classes of other names"
    )
    model.add_argument(
        "--norm",
        choices=("core", "own", "forgetful"),
        default="core",
        help="own: a class of the user's; forgetful: one that is wrong with --sp",
    )
    model.add_argument(
        "--feed-forward", choices=("core", "own"), default="core", help="own: the user's class"
    )
    model.add_argument("--experts", type=int, help="mixture of N experts")

    run = parser.add_argument_group("training")
    run.add_argument("--steps", type=int, default=3)
    run.add_argument("--global-batch", type=int, default=8)
    run.add_argument("--micro-batch", type=int, default=2)
    run.add_argument("--lr", type=float, default=1e-3)
    run.add_argument("--weight-decay", type=float, default=0.01)
    run.add_argument("--adam-beta2", type=float, default=0.999)
    run.add_argument("--clip", type=float, default=1.0)
    run.add_argument("--seed", type=int, default=1234)
    run.add_argument("--bf16", action="store_true")
    run.add_argument("--fp16", action="store_true")
    run.add_argument("--loss-scale", type=float, help="constant; without it dynamic")
    run.add_argument("--initial-loss-scale", type=float, default=2.0**16)
    run.add_argument("--distributed-optimizer", action="store_true")
    run.add_argument(
        "--repeat",
        action="store_true",
        help="reject every loss, so that Megatron repeats each step but the first",
    )
    run.add_argument("--compile", metavar="NAME", help="torch.compile modules of this name")
    run.add_argument("--recompute", action="store_true", help="every layer, in backward")
    run.add_argument(
        "--recompute-layers", type=int, default=1, metavar="N", help="layers recomputed at once"
    )
    run.add_argument("--loss-mask", choices=("full", "uneven"), default="full")
    run.add_argument("--per-token-loss", action="store_true", help="mean over all tokens at once")

    run.add_argument(
        "--bug", default=os.environ.get("ZOO_BUG"), help="names of zoo/bugs, with commas"
    )
    run.add_argument("--mutants", help="a JSON list of faults by iteration; see zoo/mutation")
    run.add_argument("--print-seconds", action="store_true", help="wall time of each step")
    run.add_argument("--print-state", action="store_true", help="hashes of every rank at the end")
    args = parser.parse_args()
    args.dtype = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32
    return args


def initialize(args: argparse.Namespace) -> None:
    """Process groups and random states. A plain `python` start is a group of one process."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        context_parallel_size=args.cp,
        create_gloo_process_groups=False,
    )
    # Stages draw different weights, as in Megatron-LM.
    seed = args.seed + 100 * parallel_state.get_pipeline_model_parallel_rank()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def seed_dropout(args: argparse.Namespace) -> None:
    """Ranks that see other data drop other values. Not before the model is built: their weights
    must be equal. Megatron-LM leaves this out unless --data-parallel-random-init is given."""
    rank = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    stage = parallel_state.get_pipeline_model_parallel_rank()
    seed = args.seed + 100 * stage + 10 * rank
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def build_config(args: argparse.Namespace) -> TransformerConfig:
    return TransformerConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        ffn_hidden_size=args.ffn,
        num_attention_heads=args.heads,
        num_query_groups=args.kv_groups,
        gated_linear_unit=args.gated,
        activation_func=torch.nn.functional.silu if args.gated else torch.nn.functional.gelu,
        hidden_dropout=args.dropout,
        attention_dropout=args.dropout,
        tensor_model_parallel_size=args.tp,
        context_parallel_size=args.cp,
        pipeline_model_parallel_size=args.pp,
        sequence_parallel=args.sp,
        bf16=args.bf16,
        fp16=args.fp16,
        params_dtype=args.dtype,
        pipeline_dtype=args.dtype,
        **(
            dict(window_size=(args.window, 0), window_attn_skip_freq=args.window_skip)
            if args.window
            else {}
        ),
        **(
            dict(
                num_moe_experts=args.experts,
                moe_router_topk=2,
                moe_token_dispatcher_type="alltoall",
                add_bias_linear=False,
            )
            if args.experts
            else {}
        ),
        recompute_granularity="full" if args.recompute else None,
        recompute_method="uniform" if args.recompute else None,
        recompute_num_layers=args.recompute_layers if args.recompute else None,
        qk_layernorm=args.qk_layernorm,
        init_method_std=args.init_std,
        calculate_per_token_loss=args.per_token_loss,
        deallocate_pipeline_outputs=True,
        # The CPU has none of the fused kernels, and gloo no batched point-to-point calls.
        use_cpu_initialization=True,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        batch_p2p_comm=False,
        batch_p2p_sync=False,
    )


def build_model(args: argparse.Namespace, config: TransformerConfig) -> DistributedDataParallel:
    layer_spec = get_gpt_layer_local_spec(num_experts=args.experts, qk_layernorm=args.qk_layernorm)
    other_layers.replace(layer_spec, args.linears, args.norm, args.feed_forward)
    if args.cp > 1:
        # Older versions lack what it needs.
        from megatron_cpu.cp_attention import ContextParallelDotProductAttention

        attention = layer_spec.submodules.self_attention.submodules
        attention.core_attention = ContextParallelDotProductAttention
    model = GPTModel(
        config,
        layer_spec,
        vocab_size=args.vocab,
        max_sequence_length=args.seq,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=args.tied,
        position_embedding_type="rope" if args.positions == "rope" else "learned_absolute",
    )
    if args.bf16 or args.fp16:
        model = Float16Module(config, model)
    if args.freeze:
        freeze(model, args.freeze)
    if args.compile:
        compile_modules(model, args.compile)
    return DistributedDataParallel(
        config,
        DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=args.distributed_optimizer
        ),
        model,
    )


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


def build_data_iterator(args: argparse.Namespace) -> Iterator[dict[str, torch.Tensor]]:
    sampler = PretrainingSampler(
        args.micro_batch,
        parallel_state.get_data_parallel_rank(),
        parallel_state.get_data_parallel_world_size(),
    )
    data = SyntheticTokens(args.vocab, args.seq, args.seed, args.loss_mask == "uneven")
    return iter(torch.utils.data.DataLoader(data, batch_sampler=sampler))


def loss_func(
    loss_mask: torch.Tensor, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Sum of the losses, number of tokens and what to report: of this rank's part of the batch."""
    loss_mask = loss_mask.reshape(-1).float()
    loss = torch.sum(output.reshape(-1).float() * loss_mask)
    machine = get_rerun_state_machine()
    machine.validate_result(
        loss,
        # It is disabled unless --repeat is given, and then nothing is right.
        rejection_func=torch.isnan if machine.get_mode() == RerunMode.DISABLED else torch.is_tensor,
        message="found NaN in the loss",
        fatal=False,
    )
    tokens = loss_mask.sum().to(torch.int)
    report = torch.stack([loss.detach(), tokens.to(loss.dtype)])
    return loss, tokens, {"lm loss": report}


def forward_step(
    data_iterator: Iterator[dict[str, torch.Tensor]], model: DistributedDataParallel
) -> tuple[torch.Tensor, partial]:
    batch = get_batch_on_this_cp_rank(next(data_iterator))
    output = model(
        batch["tokens"],
        batch["position_ids"],
        None,  # The causal mask is the attention's own.
        labels=batch["labels"],
    )
    return output, partial(loss_func, batch["loss_mask"])


def mean_loss(reports: list[dict[str, torch.Tensor]]) -> float:
    """Over all tokens of the global batch. Only the last pipeline stage has reports."""
    total = torch.stack([report["lm loss"] for report in reports]).sum(dim=0)
    dist.all_reduce(total, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    return (total[0] / total[1]).item()


def train(args: argparse.Namespace) -> DistributedDataParallel:
    config = build_config(args)
    model = build_model(args, config)
    if args.dropout > 0:
        seed_dropout(args)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=args.lr,
            weight_decay=args.weight_decay,
            adam_beta2=args.adam_beta2,
            clip_grad=args.clip,
            bf16=args.bf16,
            fp16=args.fp16,
            loss_scale=args.loss_scale,
            initial_loss_scale=args.initial_loss_scale,
            params_dtype=config.params_dtype,
            use_distributed_optimizer=args.distributed_optimizer,
        ),
        [model],
        use_gloo_process_groups=False,
    )
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads

    if args.mutants:
        mutation.plant(args.mutants, model, optimizer)

    data_iterator = RerunDataIterator(build_data_iterator(args))
    mode = RerunMode.VALIDATE_RESULTS if args.repeat else RerunMode.DISABLED
    initialize_rerun_state_machine(mode=mode)
    rows_a_call = args.micro_batch * parallel_state.get_data_parallel_world_size()
    if args.global_batch % rows_a_call:
        raise SystemExit(f"--global-batch {args.global_batch} is no multiple of {rows_a_call}")

    for step in range(args.steps):
        start = time.perf_counter()
        while get_rerun_state_machine().should_run_forward_backward(data_iterator):
            model.zero_grad_buffer()
            optimizer.zero_grad()
            reports = get_forward_backward_func()(
                forward_step_func=forward_step,
                data_iterator=data_iterator,
                model=[model],
                num_microbatches=args.global_batch // rows_a_call,
                seq_length=args.seq,
                micro_batch_size=args.micro_batch,
                forward_only=False,
            )
        get_rerun_state_machine().should_checkpoint_and_exit()
        _, grad_norm, _ = optimizer.step()
        if parallel_state.is_pipeline_last_stage():
            loss = mean_loss(reports)
            if dist.get_rank() == dist.get_world_size() - 1:
                print_line(f"step {step} loss {loss:.9g} grad_norm {float(grad_norm or 0):.9g}")
        if args.print_seconds and dist.get_rank() == 0:
            print_line(f"seconds {step} {time.perf_counter() - start:.6f}")
    return model


def main() -> None:
    args = parse_arguments()
    for bug in args.bug.split(",") if args.bug else ():
        bug_catalog.load(bug).inject()
    initialize(args)
    model = train(args)
    if args.print_state:
        states = tensor_parallel.get_cuda_rng_tracker().get_states()
        print_line(
            f"state rank {dist.get_rank()} parameters {parameter_digest(model)}"
            f" random {random_digest(states)}"
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
