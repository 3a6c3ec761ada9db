"""Trains a tiny GPT on real megatron-core, on CPUs or one GPU, in any parallel topology.

A plain trainer in the habits of Megatron-LM's `pretrain_gpt.py`; it knows nothing of a tracer. Its
options, groups, model and weights have rooms of their own in `gpt/`.

    python zoo/train_gpt.py
    torchrun --nproc-per-node 4 zoo/train_gpt.py --tp 2 --sp --pp 2
    torchrun --nproc-per-node 4 zoo/train_gpt.py --experts 4 --ep 2 --distributed-optimizer
    torchrun --nproc-per-node 2 zoo/train_gpt.py --tp 2 --bug t1_embedding_mask
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator
from functools import partial

# Before torch is imported: it reads the number of threads then.
if "--compile" not in sys.argv:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

if "--cuda" in sys.argv:
    import megatron_gpu as megatron_device
else:
    import megatron_cpu as megatron_device

megatron_device.enable()

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.rerun_state_machine import (
    RerunDataIterator,
    RerunMode,
    get_rerun_state_machine,
    initialize_rerun_state_machine,
)
from megatron.core.transformer import TransformerConfig
from megatron.core.utils import get_batch_on_this_cp_rank, get_model_config

import bug_catalog
import mutation
from gpt.groups import initialize, seed_dropout
from gpt.model import build_config, build_model
from gpt.options import parse_arguments
from gpt.versions import counted_with_others, is_last_stage, known_to
from state_digest import parameter_digest, print_line, random_digest
from synthetic_tokens import PretrainingSampler, SyntheticTokens


def build_data_iterator(args: argparse.Namespace) -> Iterator[dict[str, torch.Tensor]]:
    sampler = PretrainingSampler(
        args.micro_batch,
        parallel_state.get_data_parallel_rank(),
        parallel_state.get_data_parallel_world_size(),
    )
    data = SyntheticTokens(
        args.vocab,
        args.seq,
        args.seed,
        args.loss_mask == "uneven",
        with_padding_mask=args.padding_mask,
        with_attention_mask=args.attention_mask,
    )
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
    loss, tokens = counted_with_others(loss, tokens)
    report = torch.stack([loss.detach(), tokens.to(loss.dtype)])
    return loss, tokens, {"lm loss": report}


def forward_step(
    data_iterator: Iterator[dict[str, torch.Tensor]], model: DistributedDataParallel
) -> tuple[torch.Tensor, partial]:
    # In a dict of its own: a repeated step is given the iterator's once more.
    batch = get_batch_on_this_cp_rank({k: v.cuda() for k, v in next(data_iterator).items()})
    masks = {}
    # Further tokens that are predicted have losses of their own, inside the model.
    if get_model_config(model).mtp_num_layers:
        masks["loss_mask"] = batch["loss_mask"]
    if "padding_mask" in batch:
        masks["padding_mask"] = batch["padding_mask"]
    output = model(
        batch["tokens"],
        batch["position_ids"],
        batch.get("attention_mask"),  # Without one the attention makes a causal mask.
        labels=batch["labels"],
        **masks,
    )
    return output, partial(loss_func, batch["loss_mask"])


def mean_loss(reports: list[dict[str, torch.Tensor]]) -> float:
    """Over all tokens of the global batch. Only the last pipeline stage has reports."""
    total = torch.stack([report["lm loss"] for report in reports]).sum(dim=0)
    dist.all_reduce(total, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    return (total[0] / total[1]).item()


def build_optimizer(
    args: argparse.Namespace, model: list[DistributedDataParallel]
) -> MegatronOptimizer:
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer=args.optimizer,
            lr=args.lr,
            decoupled_lr=args.decoupled_lr,
            weight_decay=args.weight_decay,
            adam_beta2=args.adam_beta2,
            clip_grad=args.clip,
            bf16=args.bf16,
            fp16=args.fp16,
            loss_scale=args.loss_scale,
            initial_loss_scale=args.initial_loss_scale,
            params_dtype=args.dtype,
            use_distributed_optimizer=args.distributed_optimizer,
            # Told to the model alone before 0.14.
            **known_to(OptimizerConfig, overlap_param_gather=args.overlap_param_gather),
            # Older releases have AdamW alone.
            **({} if args.decoupled_weight_decay else {"decoupled_weight_decay": False}),
        ),
        model,
        use_gloo_process_groups=False,
    )
    if args.scheduler or args.decoupled_lr:
        # What a group has of its own are factors and limits, which its first step puts to work.
        OptimizerParamScheduler(
            optimizer,
            init_lr=0.0,
            max_lr=args.lr,
            min_lr=0.0,
            lr_warmup_steps=0,
            lr_decay_steps=args.steps,
            lr_decay_style="constant",
            start_wd=args.weight_decay,
            end_wd=args.weight_decay,
            wd_incr_steps=args.steps,
            wd_incr_style="constant",
        )
    return optimizer


def set_up_overlap(
    args: argparse.Namespace, config: TransformerConfig, model: list[DistributedDataParallel]
) -> None:
    """Who begins the reduction of gradients and the gathering of parameters, as in Megatron-LM."""

    def one_or_list(functions: list) -> object:
        return functions[0] if len(functions) == 1 else functions

    if args.overlap_grad_reduce:
        config.no_sync_func = one_or_list([chunk.no_sync for chunk in model])
        if args.align_grad_reduce:
            config.grad_sync_func = one_or_list([chunk.start_grad_sync for chunk in model])
    if args.overlap_param_gather:
        # Nothing has been updated yet that a forward could wait for.
        for chunk in model:
            chunk.disable_forward_pre_hook(param_sync=False)


def begin_to_gather_in_forward(
    args: argparse.Namespace, config: TransformerConfig, model: list[DistributedDataParallel]
) -> None:
    """After the first step, whose optimizer has gathered the parameters itself."""
    for chunk in model:
        chunk.enable_forward_pre_hook()
    if args.align_param_gather:
        functions = [chunk.start_param_sync for chunk in model]
        config.param_sync_func = functions[0] if len(functions) == 1 else functions


def train(args: argparse.Namespace) -> list[DistributedDataParallel]:
    config = build_config(args)
    model = build_model(args, config)
    if args.dropout > 0:
        seed_dropout(args)
    optimizer = build_optimizer(args, model)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    set_up_overlap(args, config, model)

    if args.mutants:
        mutation.plant(args.mutants, model, optimizer)

    # Every chunk reads the samples for itself.
    iterators = [RerunDataIterator(build_data_iterator(args)) for _ in model]
    data_iterator = iterators if args.vpp > 1 else iterators[0]
    mode = RerunMode.VALIDATE_RESULTS if args.repeat else RerunMode.DISABLED
    initialize_rerun_state_machine(mode=mode)
    rows_a_call = args.micro_batch * parallel_state.get_data_parallel_world_size()
    if args.global_batch % rows_a_call:
        raise SystemExit(f"--global-batch {args.global_batch} is no multiple of {rows_a_call}")

    for step in range(args.steps):
        start = time.perf_counter()
        while get_rerun_state_machine().should_run_forward_backward(data_iterator):
            for chunk in model:
                chunk.zero_grad_buffer()
            optimizer.zero_grad()
            reports = get_forward_backward_func()(
                forward_step_func=forward_step,
                data_iterator=data_iterator,
                model=model,
                num_microbatches=args.global_batch // rows_a_call,
                seq_length=args.seq,
                micro_batch_size=args.micro_batch,
                forward_only=False,
            )
        get_rerun_state_machine().should_checkpoint_and_exit()
        _, grad_norm, _ = optimizer.step()
        if step == 0 and args.overlap_param_gather:
            begin_to_gather_in_forward(args, config, model)
        if is_last_stage(None):
            loss = mean_loss(reports)
            if dist.get_rank() == dist.get_world_size() - 1:
                print_line(f"step {step} loss {loss:.9g} grad_norm {float(grad_norm or 0):.9g}")
        if args.print_seconds and dist.get_rank() == 0:
            print_line(f"seconds {step} {time.perf_counter() - start:.6f}")
    if args.overlap_param_gather:
        for chunk in model:
            chunk.disable_forward_pre_hook()
    return model


def main() -> None:
    args = parse_arguments(__doc__.splitlines()[0])
    for bug in args.bug.split(",") if args.bug else ():
        bug_catalog.load(bug).inject()
    for fix in args.fix.split(",") if args.fix else ():
        importlib.import_module(f"fixes.{fix}").apply()
    initialize(args)
    model = train(args)
    if args.print_state:
        states = tensor_parallel.get_cuda_rng_tracker().get_states()
        whole = model[0] if len(model) == 1 else torch.nn.ModuleList(model)
        print_line(
            f"state rank {dist.get_rank()} parameters {parameter_digest(whole)}"
            f" random {random_digest(states)}"
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
