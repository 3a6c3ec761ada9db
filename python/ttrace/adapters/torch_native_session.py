"""A session that writes an iteration's records when the iteration is over.

A record states the size of the global batch, which in a plain torch loop is known only once the
optimizer steps: the loop calls the model as often as it likes. Until then records wait in memory,
in order, as copies on the host. That is one iteration's activations and gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ttrace.adapters.torch_native_topology import (
    Topology,
    Unplaceable,
    dtensor_placements,
    is_dtensor,
    local_tensor,
)
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings


@dataclass
class _Waiting:
    fqn: str
    role: str
    arg: str
    tensor: torch.Tensor
    placements: str
    rest: dict[str, Any]


class DeferredSession(Session):
    """Takes DTensors too: what is recorded of one is its local tensor, and its placements are those
    that it has at that moment."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.topology = Topology()
        self._waiting: list[_Waiting] = []
        self._not_observed: set[tuple[str, str]] = set()

    @property
    def due(self) -> bool:
        """Whether the current iteration is to be captured."""
        return not self.over and self.iteration in self.settings.iterations

    def record(  # type: ignore[override]
        self,
        fqn: str,
        role: str,
        arg: str,
        tensor: torch.Tensor,
        placements: str = "",
        **rest: Any,
    ) -> None:
        if not self.recording:
            return
        always = rest.get("always", False)
        if not always and not self.selected(fqn, role, rest.get("micro_batch", -1)):
            return
        try:
            tensor, placements = self.local(tensor, placements)
        except Unplaceable as reason:
            self.not_observed(fqn, "", f"{role} {arg}: {reason}")
            return
        if tensor.layout is torch.strided:
            tensor = tensor.detach()
            tensor = tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
        self._waiting.append(_Waiting(fqn, role, arg, tensor, placements, rest))

    def local(self, tensor: torch.Tensor, placements: str) -> tuple[torch.Tensor, str]:
        """The local tensor, and for a DTensor its own placements in place of the expected ones of
        its mesh dimensions."""
        if not is_dtensor(tensor):
            return tensor, placements
        others = [
            word
            for word in placements.split()
            if word.partition(":")[0] not in self.topology.tensor_dims
        ]
        text = " ".join([*others, dtensor_placements(tensor, self.topology)]).strip()
        return local_tensor(tensor), text

    def release(self, global_rows: int, keep: Callable[[str], bool]) -> None:
        """Writes what waited, but for roles that `keep` does not want."""
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            if not keep(item.role):
                continue
            if item.rest.get("batch_dim", -1) >= 0:
                item.rest["batch_global"] = global_rows
            super().record(item.fqn, item.role, item.arg, item.tensor, item.placements, **item.rest)

    def not_observed(self, fqn: str, kind: str, reason: str) -> None:
        """Once for each name and reason."""
        if (fqn, reason) not in self._not_observed:
            self._not_observed.add((fqn, reason))
            self.note("not_observed", **{"fqn": fqn, "class": kind, "reason": reason})

    def stop(self, reason: str | BaseException) -> None:
        super().stop(reason)
        if self.over:
            self._waiting.clear()
