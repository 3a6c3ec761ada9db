"""Native Specs, made once per (tensor, shape, dtype) and reused by every record of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ttrace import _native
from ttrace.capture.placed import Box, RoutedRows, Scale

if TYPE_CHECKING:
    import torch


class SpecCache:
    """Resolving placements costs more than writing a small tensor, hence the cache."""

    def __init__(self, writer: Any, on_refused: Callable[[str, str], None]) -> None:
        """`on_refused(fqn, reason)` is called once for a tensor that does not fit its rule."""
        self._writer = writer
        self._on_refused = on_refused
        self._specs: dict[tuple[Any, ...], Any] = {}

    def get(
        self,
        fqn: str,
        role: str,
        arg: str,
        tensor: torch.Tensor,
        placements: str,
        *,
        batch_dim: int = -1,
        batch_global: int = 0,
        scale: Scale = (1, 1),
        reduced_over: tuple[str, ...] = (),
        box: Box | None = None,
        routed: RoutedRows | None = None,
        whole: tuple[int, ...] | None = None,
    ) -> Any | None:
        """The Spec of a tensor in canonical order; None if its shape contradicts `placements`.

        `box`: under RaggedShard, which part of what the other placements give the tensor is.
        `whole`: the shape of the whole tensor, where its parts may be unlike; of the batch's
        dimension `batch_global` says it. None: all parts are as large as this one.
        """
        key = (fqn, role, arg, tensor.shape, tensor.dtype, placements, batch_dim, batch_global)
        key = (*key, scale, reduced_over, box, routed, whole)
        try:
            return self._specs[key]
        except KeyError:
            pass
        try:
            spec = self._writer.spec(
                fqn,
                role,
                arg,
                str(tensor.dtype).removeprefix("torch."),
                list(tensor.shape),
                placements,
                batch_dim,
                batch_global,
                scale,
                list(reduced_over),
                None if box is None else list(box),
                routed,
                None if whole is None else list(whole),
            )
        except _native.Error as error:
            spec = None
            self._on_refused(fqn, f"{role} {arg}: {error}")
        self._specs[key] = spec
        return spec
