"""An fp32 rerun inside a bf16 or fp16 job: parameters are swapped, never overwritten.

Changing `p.data` to another dtype would replace the parameter's gradient accumulator, on which
Megatron's gradient hooks hang. So each module gets an fp32 Parameter of its own, with the same
attributes (main_grad among them), the same hooks on its gradient, and a hook that does what
Megatron's does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_LOW = (torch.bfloat16, torch.float16)
_CONFIG = {
    "bf16": False,
    "fp16": False,
    "params_dtype": torch.float32,
    "pipeline_dtype": torch.float32,
    "autocast_dtype": torch.float32,
    "enable_autocast": False,
}


def _unchanged(value: Any) -> Any:
    return value


# Modules remember what they were built for.
_MODULE = {
    "bf16": False,
    "fp16": False,
    "input_in_bf16": False,
    "input_in_fp16": False,
    "input_in_float16": False,
    "float16_convertor": _unchanged,
}


def is_low_precision(chunks: list[nn.Module]) -> bool:
    return any(p.dtype in _LOW for chunk in chunks for p in chunk.parameters())


def added_bytes(chunks: list[nn.Module]) -> int:
    """What the fp32 copies of the parameters take."""
    return sum(4 * p.numel() for chunk in chunks for p in chunk.parameters() if p.dtype in _LOW)


def refusal(chunks: list[nn.Module]) -> str | None:
    """Why an fp32 rerun is not possible or means nothing, or None."""
    if not is_low_precision(chunks):
        return "the run is in fp32 already"
    for chunk in chunks:
        for name, parameter in chunk.named_parameters():
            grad = getattr(parameter, "main_grad", None)
            if parameter.requires_grad and (grad is None or grad.dtype != torch.float32):
                return f"the gradient buffer of {name} is not in fp32 (grad_reduce_in_fp32)"
    return None


class _Undo:
    """Assignments to dictionaries, to be taken back in reverse order."""

    def __init__(self) -> None:
        self._saved: list[tuple[dict[str, Any], str, Any]] = []

    def set(self, where: dict[str, Any], key: str, value: Any) -> None:
        self._saved.append((where, key, where[key]))
        where[key] = value

    def __call__(self) -> None:
        for where, key, value in reversed(self._saved):
            where[key] = value
        self._saved.clear()


@contextmanager
def full_precision(chunks: list[nn.Module]) -> Iterator[None]:
    """Inside, the chunks compute in fp32 with the values their parameters have now."""
    undo = _Undo()
    copies: dict[nn.Parameter, nn.Parameter] = {}
    accumulators: list[Any] = []  # hooked nodes live as long as somebody holds them
    registered: list[tuple[dict[Any, Any], nn.Parameter]] = []
    configs: dict[int, Any] = {}
    try:
        for chunk in chunks:
            for module in chunk.modules():
                _swap_tensors(chunk, module, copies, accumulators, undo)
                for name, value in _MODULE.items():
                    if name in vars(module):
                        undo.set(vars(module), name, value)
                config = getattr(module, "config", None)
                if config is not None:
                    configs[id(config)] = config
            groups = getattr(chunk, "param_to_bucket_group", {})
            for original, copy in copies.items():
                if original in groups:  # pre-hooks that gather look the parameter up
                    groups[copy] = groups[original]
                    registered.append((groups, copy))
        for config in configs.values():
            for name, value in _CONFIG.items():
                if name in vars(config):
                    undo.set(vars(config), name, value)
        yield
    finally:
        for groups, copy in registered:
            groups.pop(copy, None)
        undo()


def _swap_tensors(
    chunk: nn.Module,
    module: nn.Module,
    copies: dict[nn.Parameter, nn.Parameter],
    accumulators: list[Any],
    undo: _Undo,
) -> None:
    for name, parameter in list(module._parameters.items()):
        if parameter is None or parameter.dtype not in _LOW:
            continue
        if parameter not in copies:
            copy = nn.Parameter(parameter.detach().float(), requires_grad=parameter.requires_grad)
            copy.__dict__.update(parameter.__dict__)
            # What somebody does to this gradient on its way is part of the computation.
            copy._backward_hooks = parameter._backward_hooks and parameter._backward_hooks.copy()
            copy.grad_added_to_main_grad = False
            copies[parameter] = copy
            if copy.requires_grad:
                with torch.enable_grad():
                    node = copy.expand_as(copy).grad_fn.next_functions[0][0]
                node.register_hook(_accumulate(chunk, parameter, copy))
                accumulators.append(node)
        undo.set(module._parameters, name, copies[parameter])
    for name, buffer in list(module._buffers.items()):
        if buffer is not None and buffer.dtype in _LOW:
            undo.set(module._buffers, name, buffer.float())


def _accumulate(
    chunk: nn.Module, parameter: nn.Parameter, copy: nn.Parameter
) -> Callable[..., None]:
    """What DistributedDataParallel's hook does for the original."""

    def hook(*unused: Any) -> None:
        if copy.grad is not None:
            # A fused kernel has added the gradient itself, and what arrives here is a dummy.
            added = getattr(copy, "grad_added_to_main_grad", False)
            if not added or getattr(copy, "zero_out_wgrad", False):
                parameter.main_grad.add_(copy.grad)
            copy.grad = None
        groups = getattr(chunk, "param_to_bucket_group", {})
        if parameter in groups and chunk.ddp_config.overlap_grad_reduce:
            groups[parameter].register_grad_ready(parameter)

    return hook
