"""What a Megatron run may use that this version cannot judge: named, and captured as far as it
goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import nn

from ttrace.adapters.megatron import names
from ttrace.capture.recorder import CUDA_GRAPHS

if TYPE_CHECKING:
    from ttrace.adapters.megatron.model import Model

Unsupported = tuple[str, str, str]  # what, reason, way out
_QUANTISED = ("fp8", "fp4")


def unsupported(model: Model) -> Iterator[Unsupported]:
    if is_sharded(model):
        yield (
            "FSDP",
            "parameters are sharded between their uses: they and their gradients are not recorded",
            "compare the run without FSDP",
        )
    if _optimizer_instances(model) > 1:
        yield (
            "several instances of the distributed optimizer",
            "gradients are reduced within an instance first, and which part is whose differs",
            "compare the run with --num-distributed-optimizer-instances 1",
        )
    yield from _of_experts(model.config)
    yield from _of_further_tokens(model)
    yield from _of_configuration(model.config)
    root = type(model.chunks[0].root)
    if not any(base.__name__ == "GPTModel" for base in root.__mro__):
        yield (
            f"model class {root.__name__}",
            "the placements of its activations are known for GPTModel only",
            "",
        )


def leg_refusal(model: Model, fp32: bool) -> str | None:
    """Why a rerun of the iteration is not possible or means nothing, or None."""
    if is_sharded(model):
        return "gradients of FSDP cannot be put back"
    if uses_cuda_graphs(model.config) or model.session.has_seen(CUDA_GRAPHS[0]):
        return "an iteration with CUDA graphs cannot be run with other values"
    quantised = any(
        _is_set(model.config, name) or model.session.has_seen(name) for name in _QUANTISED
    )
    if fp32 and quantised:
        return "the run is quantised, which an fp32 leg would not undo"
    return None


def uses_cuda_graphs(config: Any) -> bool:
    names = ("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")
    return any(_is_set(config, name) for name in names)


def _is_set(config: Any, name: str) -> bool:
    return getattr(config, name, None) not in (None, False, 0, "none", [], ())


def _of_experts(config: Any) -> Iterator[Unsupported]:
    if not getattr(config, "num_moe_experts", None):
        return
    if getattr(config, "moe_token_dispatcher_type", "") == "flex":
        yield (
            "the flex dispatcher of experts",
            "its order of tokens is known to its kernels only",
            "compare the run with --moe-token-dispatcher-type alltoall",
        )
    if _is_set(config, "moe_shared_expert_overlap"):
        yield (
            "shared experts that overlap with the dispatcher",
            "they are called in parts, which no hook sees",
            "compare the run without --moe-shared-expert-overlap",
        )


def _of_further_tokens(model: Model) -> Iterator[Unsupported]:
    """Multi-token prediction. Stages say this for themselves."""
    roots = [chunk.root for chunk in model.chunks if names.has_further_tokens(chunk.root)]
    if any(not root.post_process for root in roots):
        yield (
            "multi-token prediction before the last stage",
            "the stages after it are handed several hidden states in one tensor",
            "compare the run with its layers on the last stage",
        )
    again = [root for root in roots if names.embeds_again(root)]
    if any(getattr(root.embedding, "add_position_embedding", False) for root in again):
        yield (
            "multi-token prediction with learned positions over pipeline stages",
            "the last stage has a table of positions of its own, which nothing ties to the first's",
            "compare the run with --pipeline-model-parallel-size 1",
        )


def _of_configuration(config: Any) -> Iterator[Unsupported]:
    for name in _QUANTISED:
        if _is_set(config, name):
            yield (
                name,
                "scales of quantised tensors follow the history of the run",
                f"compare the run without --{name}-format" if name == "fp8" else "",
            )
    if uses_cuda_graphs(config):
        yield CUDA_GRAPHS
    for name, what, way_out in (
        ("experimental_attention_variant", "experimental attention variant", ""),
        ("heterogeneous_block_specs", "heterogeneous blocks", ""),
        ("delay_wgrad_compute", "delayed weight gradients", "--delay-wgrad-compute"),
        ("cpu_offloading", "offloading to the CPU", "--cpu-offloading"),
    ):
        if _is_set(config, name):
            text = f"compare the run without {way_out}" if way_out else ""
            yield what, f"{name} was not tested with this version", text


def uses_distributed_optimizer(model: Model) -> bool:
    return any(
        getattr(getattr(chunk.wrapped, "ddp_config", None), "use_distributed_optimizer", False)
        for chunk in model.chunks
    )


def _optimizer_instances(model: Model) -> int:
    counts = (
        getattr(ddp_config, "num_distributed_optimizer_instances", 1)
        for chunk in model.chunks
        for ddp_config in [getattr(chunk.wrapped, "ddp_config", None)]
    )
    return max(counts, default=1)


def is_sharded(model: Model) -> bool:
    """By Megatron's own FSDP or torch's."""
    return any(is_sharding(chunk.wrapped) for chunk in model.chunks)


def is_sharding(wrapped: nn.Module) -> bool:
    return any(
        "FullyShardedDataParallel" in type(module).__name__ or "FSDP" in type(module).__name__
        for module in names.wrappers(wrapped)
    )
