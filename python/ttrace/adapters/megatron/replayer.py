"""Runs Megatron's forward_backward_func again on the same data. See capture/adapter.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from ttrace.adapters.megatron import fp32
from ttrace.adapters.megatron.hidden_data import HiddenData
from ttrace.adapters.megatron.model import Model
from ttrace.adapters.megatron.repeats import not_validating
from ttrace.adapters.megatron.unsupported import leg_refusal
from ttrace.capture import replay_data
from ttrace.capture.course import Course
from ttrace.capture.legs import Leg, Refusal
from ttrace.capture.placed import Batch, ParameterRule
from ttrace.capture.settings import LegName
from ttrace.capture.state import GlobalState, Part, Watched

# Attributes that are structure or large buffers, restored by other means or not at all.
_BUCKETS = frozenset(
    {
        "params",
        "buckets",
        "param_to_bucket",
        "cached_param_buffer_shard_list",
        "cached_grad_buffer_shard_list",
    }
)
_BUFFERS = frozenset(
    {"param_data", "grad_data", "buckets", "params", "param_to_bucket", "param_index_map"}
)
_CHUNK = frozenset(
    {"param_to_bucket_group", "params_with_grad", "grad_accs", "remove_forward_pre_hook_handles"}
)


class MegatronReplayer:
    """For one call of the schedule."""

    def __init__(
        self,
        model: Model,
        course: Course,
        schedule: Callable[..., Any],
        arguments: dict[str, Any],
        batch: Batch,
        hidden: HiddenData,
    ) -> None:
        """`arguments` are those of the real call, with the data iterator wrapped."""
        self._model = model
        self._course = course
        self._schedule = schedule
        self._arguments = arguments
        self._batch = batch
        self._hidden = hidden
        self._iterators: list[Any] = []  # of data, beside the schedule's own
        self._records_reduced = True

    def rewind_too(self, iterators: list[Any]) -> None:
        """Iterators of data beside the schedule's own."""
        self._iterators = iterators

    def leave_out_reduced(self) -> None:
        """What the schedule leaves in reduced gradients is not what the optimizer finds."""
        self._records_reduced = False

    @property
    def device(self) -> torch.device:
        return self._model.device

    def watched(self) -> Iterator[Watched]:
        for index, chunk in enumerate(self._model.chunks):
            wrapped = chunk.wrapped
            for name, module in wrapped.named_modules():
                yield Watched(name or f"chunk {index}", module, _CHUNK)
            for i, group in enumerate(_groups(wrapped)):
                yield Watched(f"chunk {index} bucket group {i}", group, _BUCKETS)
            for i, buffer in enumerate(_buffers(wrapped)):
                yield Watched(f"chunk {index} buffer {i}", buffer, _BUFFERS)
            yield Watched(f"chunk {index} configuration", chunk.config)

    def global_states(self) -> list[GlobalState]:
        from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

        tracker = get_cuda_rng_tracker()
        return [
            GlobalState("random states of Megatron", tracker.get_states, tracker.set_states),
            GlobalState(
                "variables of forward_step", self._hidden.counters, self._hidden.set_counters
            ),
        ]

    def refusal(self, leg: str) -> Refusal | None:
        in_fp32 = LegName.parse(leg).fp32
        lost = replay_data.lost([self._arguments["data_iterator"], *self._iterators])
        if lost is not None:
            return Refusal(f"the iteration's data could not be kept: {lost}")
        reason = leg_refusal(self._model, in_fp32)
        if reason is not None:
            return Refusal(reason)
        reason = fp32.refusal(self._model.wrapped) if in_fp32 else None
        needless = not fp32.is_low_precision(self._model.wrapped)
        return None if reason is None else Refusal(reason, expected=needless)

    def memory(self, leg: str) -> int:
        """Activations of the real call are free again and will be taken again; copies are new."""
        return fp32.added_bytes(self._model.wrapped) if LegName.parse(leg).fp32 else 0

    def save_gradients(self) -> list[Part]:
        parts = []
        for wrapped in self._model.wrapped:
            for index, buffer in enumerate(_buffers(wrapped)):
                saved = buffer.grad_data.clone()
                put_back = partial(buffer.grad_data.copy_, saved)
                parts.append(Part(f"gradient buffer {index}", put_back))
            for name, parameter in wrapped.named_parameters():
                flag = getattr(parameter, "grad_added_to_main_grad", None)
                if flag is not None:
                    put_back = partial(setattr, parameter, "grad_added_to_main_grad", flag)
                    parts.append(Part(f"{name}.grad_added_to_main_grad", put_back))
        return parts

    def clear_gradients(self) -> None:
        for wrapped in self._model.wrapped:
            wrapped.zero_grad_buffer()

    def full_precision(self) -> AbstractContextManager[None]:
        return fp32.full_precision(self._model.wrapped)

    def parameters(self) -> Iterable[tuple[str, torch.Tensor, ParameterRule, str]]:
        for entry in self._model.parameters():
            where = self._model.topology.coordinate_of(*entry.rule.reduced_over)
            yield entry.fqn, entry.current, entry.rule, where

    draws_all = True
    is_trusted = True  # the schedule is called again
    fails_cleanly = False

    def problem(self) -> str | None:
        return None

    def sends(self) -> str:
        return ""  # the schedule's own are those of the real call

    def repeat(self, meet: Callable[[], None]) -> None:
        """Nothing is to be found out."""

    def differences(self) -> list[str]:
        return []

    def digest(self) -> str:
        return ""

    def repeatable(self) -> None:
        """It is trusted."""

    def not_repeatable(self, reason: str) -> None:
        """It is trusted."""

    def run(self, leg: Leg, meet: Callable[[], None]) -> None:
        self._model.begin_call(self._batch)
        replay_data.rewind([self._arguments["data_iterator"], *self._iterators])
        with self._course.rerunning():
            with not_validating():
                self._schedule(**self._arguments)
            self._course.rerun_done(self._records_reduced)


def _groups(wrapped: Any) -> list[Any]:
    return [
        *getattr(wrapped, "bucket_groups", ()),
        *getattr(wrapped, "expert_parallel_bucket_groups", ()),
    ]


def _buffers(wrapped: Any) -> list[Any]:
    # torch's Module.buffers is a method; Megatron's wrapper has a list of that name.
    buffers = getattr(wrapped, "buffers", None)
    dense = buffers if isinstance(buffers, list) else []
    return [*dense, *getattr(wrapped, "expert_parallel_buffers", ())]
