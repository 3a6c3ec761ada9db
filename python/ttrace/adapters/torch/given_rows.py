"""What a forward is given, row by row, and what of that is the loop's own (made_by_roots.py)."""

from __future__ import annotations

from typing import Any

import torch

from ttrace.adapters.torch import fed_rows
from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.attached_root import AttachedRoot
from ttrace.adapters.torch.data import Data
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.repeat.repetition import Repetition
from ttrace.capture import nested
from ttrace.capture.nested import named_tensors
from ttrace.capture.placed import Moment


class GivenRows:
    """Of all forwards of one loop."""

    def __init__(
        self,
        session: LoopSession,
        model: AttachedModel,
        data: Data,
        repetition: Repetition,
    ) -> None:
        self._session = session
        self._model = model
        self._data = data
        self._repetition = repetition

    def made(self, output: Any, in_forward: bool) -> None:
        """By a call of a root, which is a forward of an iteration or is none."""
        if self._model.has_several:
            values = (value for _, value in nested.outputs(output))
            self._session.now.made.made(values, in_forward)

    def is_computed(self, tensor: torch.Tensor) -> bool:
        """Whether a root has made it, where there are several."""
        if not self._model.has_several:
            return False
        return self._session.now.made.has(tensor) or self._repetition.has_made(tensor)

    def own(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Those of which no tensor was computed."""
        return {
            name: value
            for name, value in arguments.items()
            if not any(self.is_computed(tensor) for _, tensor in named_tensors(value, name))
        }

    def note(self, root: AttachedRoot, moment: Moment, arguments: dict[str, Any]) -> None:
        """What this forward is given, row by row, and where the reference has these rows."""
        session = self._session
        if session.topology.cuts_tensors:
            return  # parts of rows may lie on other ranks
        tensors = fed_rows.fed(self.own(arguments)) or session.now.made.rows_of(arguments)
        session.now.made.forward(tensors)
        before = {
            fqn: count
            for (fqn, pass_), count in moment.calls.items()
            if pass_ == "forward" and root.has(fqn)
        }
        fed_rows.note(
            session,
            tensors,
            fed="",
            root=root.name,
            iteration=moment.iteration,
            micro_batch=moment.micro_batch,
            call=moment.call,
            rows=moment.batch.micro_batch_size,
            calls=before if moment.call > 0 else {},
        )
        placed = self._data.place(moment.iteration, moment.call, tensors)
        if placed is not None and placed.found:
            moment.place_rows(placed)
