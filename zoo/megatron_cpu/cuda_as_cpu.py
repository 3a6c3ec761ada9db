"""Makes the name "cuda" mean the CPU, for code that never asks whether a GPU is there.

Streams and events have nothing to order on a CPU, so they become objects that accept every call.
Random states of "the GPU" are those of torch's default generator: there is only one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

_CPU = torch.device("cpu")

# Every factory through which megatron-core creates a tensor on its device.
_FACTORIES = (
    "arange as_tensor empty empty_like eye full full_like linspace ones ones_like "
    "rand randint randn randn_like tensor triu_indices zeros zeros_like"
).split()


class _Event:
    """An event that has always happened already."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, *args: Any) -> None:
        pass

    def wait(self, *args: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: _Event) -> float:
        return 0.0


class _Stream:
    """A stream on which every piece of work is already done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def wait_stream(self, stream: _Stream) -> None:
        pass

    def wait_event(self, event: _Event) -> None:
        pass

    def record_event(self, event: _Event | None = None) -> _Event:
        return event or _Event()

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class _Nvtx:
    """Profiler ranges, dropped."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


@contextlib.contextmanager
def _on_stream(stream: _Stream | None) -> Iterator[_Stream | None]:
    yield stream


def _names_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.startswith("cuda")


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def create(*args: Any, **kwargs: Any) -> torch.Tensor:
        if _names_cuda(kwargs.get("device")):
            kwargs["device"] = _CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return factory(*args, **kwargs)

    return create


def _returning(answer: Any) -> Callable[..., Any]:
    """A new function each time: torch._dynamo refuses one object under two known names."""
    return lambda *args, **kwargs: answer


def _replace_runtime() -> None:
    cuda = torch.cuda
    for name in ("set_device", "synchronize", "empty_cache", "_lazy_init"):
        setattr(cuda, name, _returning(None))
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(cuda, name, _returning(0))
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, _returning(_Stream()))
    cuda.current_device = _returning(_CPU)
    cuda.get_device_capability = _returning((0, 0))
    cuda.is_current_stream_capturing = _returning(False)
    # Megatron's tracker of random states asks for it where it is to hold generators.
    cuda.CUDAGraph.register_generator_state = _returning(None)
    cuda.Stream, cuda.Event, cuda.nvtx = _Stream, _Event, _Nvtx()
    cuda.stream = _on_stream
    cuda._lazy_call = lambda function, **kwargs: function()


def _replace_random_states() -> None:
    cuda = torch.cuda
    # Not torch.manual_seed: that one seeds "all devices" and would come back here forever.
    cuda.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))
    cuda.manual_seed_all = lambda seed: None
    cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    cuda.random.get_rng_state = cuda.get_rng_state


def _replace_tensor_methods() -> None:
    original_to, original_type = torch.Tensor.to, torch.Tensor.type

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        args = tuple(_CPU if _names_cuda(arg) else arg for arg in args)
        if _names_cuda(kwargs.get("device")):
            kwargs["device"] = _CPU
        return original_to(self, *args, **kwargs)

    def type_of(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # Megatron sorts parameters by the name "torch.cuda.FloatTensor".
        answer = original_type(self, *args, **kwargs)
        if isinstance(answer, str) and "cuda" not in answer:
            return answer.replace("torch.", "torch.cuda.", 1)
        return answer

    torch.Tensor.to, torch.Tensor.type = to, type_of
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    torch.nn.Module.cuda = lambda self, *args, **kwargs: self


def install() -> None:
    """Replaces the parts of torch that would need a CUDA device. To be called once."""
    _replace_runtime()
    _replace_random_states()
    _replace_tensor_methods()
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
