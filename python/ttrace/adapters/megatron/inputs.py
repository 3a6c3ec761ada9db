"""The model's own inputs, where forward_step makes its batch by hand and no iterator hands it out.

They are grafted in place of data, and a rerun is given what the real call was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ttrace.adapters.megatron.batch import DataItems
from ttrace.adapters.megatron.model import Chunk, Model
from ttrace.capture.graft import Graft
from ttrace.capture.module_hooks import Arguments
from ttrace.capture.placed import TensorRule
from ttrace.capture.tensor_bytes import bitwise_equal

Call = tuple[tuple[Any, ...], dict[str, Any]]


class OwnInputs:
    """Of one call of the schedule and its reruns."""

    def __init__(self, model: Model, items: DataItems, graft: Graft | None, keep: bool) -> None:
        self._model = model
        self._items = items
        self._graft = graft if graft is not None and graft.data else None
        self._keep = keep
        self._kept: dict[tuple[int, int], dict[str, torch.Tensor]] = {}

    def enter(
        self, chunk: Chunk, forward: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call | None:
        """At the `forward`-th forward of a chunk: the call to make instead, or None."""
        if self._items.tensors:
            return None
        session = self._model.session
        at = (self._model.chunks.index(chunk), forward)
        if session.leg != session.settings.leg:
            return _replace(chunk.root, args, kwargs, self._again(at))
        replaced = {}
        if self._graft is not None:
            replaced = _replace(chunk.root, args, kwargs, self._grafted(chunk, forward))
        if self._keep:
            kept: dict[str, torch.Tensor] = {}
            call = replaced or (args, kwargs)
            _replace(chunk.root, *call, lambda name, value: kept.setdefault(name, value.clone()))
            self._kept[at] = kept
        return replaced or None

    def _again(self, at: tuple[int, int]) -> Callable[[str, torch.Tensor], torch.Tensor]:
        kept = self._kept.get(at, {})

        def given(name: str, value: torch.Tensor) -> torch.Tensor:
            if name not in kept:
                return value
            if self._graft is None and not bitwise_equal(kept[name], value):
                raise RuntimeError(
                    f"forward_step makes another batch when it runs again: {name} differs"
                )
            return kept[name].clone()

        return given

    def _grafted(self, chunk: Chunk, forward: int) -> Callable[[str, torch.Tensor], torch.Tensor]:
        session, graft = self._model.session, self._graft
        assert graft is not None and self._model.batch is not None
        batch = self._model.batch
        micro_batch = self._model.micro_batch(forward)
        rule = chunk.rules.module(chunk.root, "")

        def given(name: str, value: torch.Tensor) -> torch.Tensor:
            known = rule.inputs.get(name) if rule is not None else None
            if not isinstance(known, TensorRule):
                return value
            spec = session.specs.get(
                "",
                "input",
                name,
                value,
                known.placements,
                batch_dim=known.batch_dim,
                batch_global=batch.global_rows,
            )
            return graft.item(
                name,
                value,
                spec,
                iteration=session.iteration,
                micro_batch=micro_batch,
                row_begin=micro_batch * batch.micro_batch_size,
                own_input=True,
            )

        return given


def _replace(
    root: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: Callable[[str, torch.Tensor], torch.Tensor],
) -> Call:
    """The call with other tensors for those of its arguments that are tensors."""

    def one(name: str, value: Any) -> Any:
        return given(name, value) if torch.is_tensor(value) else value

    names = Arguments.of(root).names
    positional = [one(name, value) for name, value in zip(names, args, strict=False)]
    return (*positional, *args[len(positional) :]), {k: one(k, v) for k, v in kwargs.items()}
