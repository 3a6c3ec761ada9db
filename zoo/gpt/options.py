"""The command line of `train_gpt.py`."""

from __future__ import annotations

import argparse
import os

import torch

# Not moe_act: megatron-core has it for GroupedMLP only.
RECOMPUTABLE = ("core_attn", "mlp", "layernorm", "moe", "shared_experts", "mla_up_proj")
AUX_LOSSES = ("aux_loss", "seq_aux_loss", "global_aux_loss")


def parse_arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    _add_topology(parser.add_argument_group("topology (what remains of the processes is dp)"))
    _add_model(parser.add_argument_group("model"))
    _add_experts(parser.add_argument_group("experts"))
    _add_training(parser.add_argument_group("training"))
    _add_optimizer(parser.add_argument_group("optimizer and reduction of gradients"))
    _add_tools(parser.add_argument_group("faults and reports"))
    args = parser.parse_args()
    args.dtype = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32
    _refuse(args)
    return args


def _refuse(args: argparse.Namespace) -> None:
    """What megatron-core would refuse late, or not at all, in words of these options."""
    if args.vpp > 1 and args.pp == 1:
        raise SystemExit("--vpp: needs --pp")
    if args.ep > 1 and not args.experts:
        raise SystemExit("--ep: needs --experts")
    if args.overlap_param_gather and not args.overlap_grad_reduce:
        raise SystemExit("--overlap-param-gather: needs --overlap-grad-reduce")
    if args.overlap_param_gather and not args.distributed_optimizer:
        raise SystemExit("--overlap-param-gather: needs --distributed-optimizer")
    if args.cp > 1 and args.softmax != "vanilla":
        raise SystemExit("--cp: its attention has no --softmax")
    if args.cp > 1 and args.attention_mask:
        raise SystemExit("--cp: its attention knows no --attention-mask")
    if args.recompute_modules and "mlp" in args.recompute_modules and args.linear_bias:
        # The recomputed block returns its bias, which then passes for computed by it: backward
        # comes to the block again from within itself.
        raise SystemExit(
            "--recompute-modules mlp: never ends in megatron-core but --no-linear-bias"
        )
    if args.linears == "te-fused" and (args.mla or args.norm == "own"):
        raise SystemExit("--linears te-fused: has norms of its own, and not those of --mla")
    if args.linears != "core" and args.fake_fp8:
        raise SystemExit("--fake-fp8: replaces the linears that --linears names")
    if args.grouped_gemm:
        raise SystemExit(
            "--grouped-gemm: the kernels of megatron-core's GroupedMLP (the grouped_gemm package,"
            " or TransformerEngine's) exist for GPUs only"
        )


def _add_topology(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--tp", type=int, default=1)
    group.add_argument("--cp", type=int, default=1)
    group.add_argument("--pp", type=int, default=1)
    group.add_argument("--sp", action="store_true", help="sequence parallel, within tp")
    group.add_argument("--vpp", type=int, default=1, help="virtual stages on each stage of --pp")
    group.add_argument("--ep", type=int, default=1, help="ranks that share the experts")
    group.add_argument("--etp", type=int, help="tensor parallel size of experts (as --tp)")
    group.add_argument("--cuda", action="store_true", help="on one GPU, which all ranks share")


def _add_model(group: argparse._ArgumentGroup) -> None:
    flag = argparse.BooleanOptionalAction
    group.add_argument("--layers", type=int, default=4)
    group.add_argument("--hidden", type=int, default=64)
    group.add_argument("--heads", type=int, default=4)
    group.add_argument("--kv-groups", type=int, default=2)
    group.add_argument("--ffn", type=int, default=128)
    group.add_argument("--seq", type=int, default=32)
    group.add_argument("--vocab", type=int, default=128)
    group.add_argument("--gated", action=flag, default=True, help="SwiGLU instead of GELU")
    group.add_argument("--tied", action=flag, default=True, help="embedding is the LM head")
    group.add_argument("--linear-bias", action=flag, default=True, help="experts never have one")
    group.add_argument("--dropout", type=float, default=0.0)
    group.add_argument(
        "--graph-safe-rng",
        action="store_true",
        help="Megatron's tracker holds generators, as for CUDA graphs",
    )
    group.add_argument("--positions", choices=("rope", "learned"), default="rope")
    group.add_argument("--qk-layernorm", action="store_true", help="normalise queries and keys")
    group.add_argument(
        "--qk-layer-scaling", action="store_true", help="divide scores by the layer's number"
    )
    group.add_argument(
        "--softmax",
        choices=("vanilla", "off-by-one", "learnable"),
        default="vanilla",
        help="with a constant or a learned score that no key has (attention sink)",
    )
    group.add_argument("--mla", action="store_true", help="multi-latent attention")
    group.add_argument(
        "--query-rank", type=int, default=32, metavar="N", help="of --mla (0: not compressed)"
    )
    group.add_argument("--mtp", type=int, metavar="N", help="predict N more tokens")
    group.add_argument(
        "--window", type=int, default=0, metavar="N", help="attend to N tokens back (0: to all)"
    )
    group.add_argument(
        "--window-skip", type=int, metavar="K", help="every K-th layer attends to all tokens"
    )
    group.add_argument(
        "--init-std", type=float, default=0.02, help="small: attention is near uniform at first"
    )
    group.add_argument(
        "--weights-by-name",
        action="store_true",
        help="equal weights in every topology, also where stages or ranks hold other layers or"
        " experts; always so with --experts",
    )
    group.add_argument(
        "--freeze", metavar="NAME", help="do not train modules of this name, as linear_fc1"
    )
    group.add_argument(
        "--linears",
        choices=("core", "te", "te-fused"),
        default="core",
        help="te: classes of other names; te-fused: norms are part of them",
    )
    group.add_argument(
        "--fake-fp8",
        action="store_true",
        help="linears round inputs and weights to FP8, with one scale for all ranks",
    )
    group.add_argument(
        "--norm",
        choices=("core", "own", "forgetful"),
        default="core",
        help="own: a class of the user's; forgetful: one that is wrong with --sp",
    )
    group.add_argument(
        "--feed-forward", choices=("core", "own"), default="core", help="own: the user's class"
    )


def _add_experts(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--experts", type=int, help="mixture of N experts")
    group.add_argument("--topk", type=int, default=2, help="experts of a token")
    group.add_argument("--dispatcher", choices=("alltoall", "allgather"), default="alltoall")
    group.add_argument("--grouped-gemm", action="store_true", help="GroupedMLP (needs a GPU)")
    group.add_argument("--shared-expert-ffn", type=int, metavar="N", help="width of a shared one")
    group.add_argument("--shared-expert-gate", action="store_true")
    group.add_argument("--aux-loss", choices=AUX_LOSSES, help="balances the experts' load")
    group.add_argument("--aux-loss-coeff", type=float, default=1e-2)
    group.add_argument("--z-loss", type=float, metavar="C", help="keeps router logits small")
    group.add_argument(
        "--router-jitter", type=float, metavar="EPS", help="noise in what the router is given"
    )
    group.add_argument("--router-scores", choices=("softmax", "sigmoid"), default="softmax")
    group.add_argument("--router-pre-softmax", action="store_true", help="softmax before top-k")
    group.add_argument(
        "--expert-bias", action="store_true", help="balance by a bias; with sigmoid scores"
    )
    group.add_argument("--moe-layer-freq", type=int, default=1, metavar="N", help="1 layer of N")
    group.add_argument("--capacity-factor", type=float, help="drop what an expert has no room for")
    group.add_argument("--pad-to-capacity", action="store_true")


def _add_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--steps", type=int, default=3)
    group.add_argument("--global-batch", type=int, default=8)
    group.add_argument("--micro-batch", type=int, default=2)
    group.add_argument("--seed", type=int, default=1234)
    group.add_argument("--bf16", action="store_true")
    group.add_argument("--fp16", action="store_true")
    group.add_argument("--loss-scale", type=float, help="constant; without it dynamic")
    group.add_argument("--initial-loss-scale", type=float, default=2.0**16)
    group.add_argument(
        "--repeat",
        action="store_true",
        help="reject every loss, so that Megatron repeats each step but the first",
    )
    group.add_argument("--compile", metavar="NAME", help="torch.compile modules of this name")
    group.add_argument("--recompute", action="store_true", help="every layer, in backward")
    group.add_argument(
        "--recompute-layers", type=int, default=1, metavar="N", help="layers recomputed at once"
    )
    group.add_argument(
        "--recompute-modules", nargs="+", choices=RECOMPUTABLE, help="only parts of every layer"
    )
    group.add_argument("--loss-mask", choices=("full", "uneven"), default="full")
    group.add_argument("--per-token-loss", action="store_true", help="mean over all tokens at once")
    group.add_argument("--label-smoothing", type=float, default=0.0)
    group.add_argument(
        "--gathered-logits", action="store_true", help="every rank has the logits of all tokens"
    )
    group.add_argument(
        "--padding-mask",
        action="store_true",
        help="what --loss-mask leaves out is padding to routers",
    )
    group.add_argument(
        "--attention-mask", action="store_true", help="as a tensor: nobody sees what is left out"
    )


def _add_optimizer(group: argparse._ArgumentGroup) -> None:
    flag = argparse.BooleanOptionalAction
    group.add_argument("--lr", type=float, default=1e-3)
    group.add_argument(
        "--scheduler",
        action="store_true",
        help="Megatron's, of constant rates: without it vectors decay like matrices",
    )
    group.add_argument("--decoupled-lr", type=float, help="of embedding and LM head")
    group.add_argument("--weight-decay", type=float, default=0.01)
    group.add_argument(
        "--fused-wgrad",
        action="store_true",
        help="linears add weight gradients to the buffer themselves",
    )
    group.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    group.add_argument(
        "--decoupled-weight-decay", action=flag, default=True, help="AdamW's, not Adam's"
    )
    group.add_argument("--adam-beta2", type=float, default=0.999)
    group.add_argument("--clip", type=float, default=1.0)
    group.add_argument("--distributed-optimizer", action="store_true")
    group.add_argument("--overlap-grad-reduce", action="store_true")
    group.add_argument(
        "--grad-reduce-in-bf16",
        action="store_true",
        help="gradients in the parameters' precision (--bf16, --fp16), not in fp32",
    )
    group.add_argument("--overlap-param-gather", action="store_true")
    group.add_argument(
        "--align-grad-reduce", action=flag, default=True, help="by the schedule, in all stages"
    )
    group.add_argument("--align-param-gather", action="store_true")
    group.add_argument(
        "--bucket-size", type=int, metavar="N", help="elements, with --overlap-grad-reduce"
    )


def _add_tools(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--bug", default=os.environ.get("ZOO_BUG"), help="names of zoo/bugs, with commas"
    )
    group.add_argument("--fix", help="names of zoo/fixes, with commas")
    group.add_argument("--mutants", help="a JSON list of faults by iteration; see zoo/mutation")
    group.add_argument("--print-seconds", action="store_true", help="wall time of each step")
    group.add_argument("--print-state", action="store_true", help="hashes of every rank at the end")
