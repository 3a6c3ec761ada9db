"""What enters and leaves an iteration: items of the data iterator, and losses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ttrace.adapters.megatron.model import Model
from ttrace.capture.graft import Graft
from ttrace.capture.placed import Batch, Moment
from ttrace.capture.replay_data import map_tensors

_MORE = "an iterator is read more often than there are micro-batches"


class DataItems:
    """Records each item of the data iterator, and hands on the reference's if it is grafted."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        iteration: int,
        graft: Graft | None,
        repeated: bool = False,
    ) -> None:
        """`repeated`: the loop runs the iteration again, which is recorded already."""
        self._model = model
        self._batch = batch
        self._iteration = iteration
        self._graft = graft if graft is not None and graft.data else None
        self._repeated = repeated
        self.tensors = 0  # seen so far
        self._more_than_needed = False

    def inspect(self, position: int, item: Any) -> Any:
        """The item itself, or its grafted copy. Never raises."""
        session = self._model.session
        if not session.recording:
            return item
        # Chunks of a stage that share an iterator read for each other: such an item is no row of
        # the batch, and whatever the model makes of it is seen in the model.
        if 0 < self._batch.micro_batches <= position:
            if not self._more_than_needed:
                session.note("not_recorded", fqn="data", role="data", arg="", reason=_MORE)
            self._more_than_needed = True
            return item
        try:
            micro_batch = self._model.micro_batch(position)
            with torch.no_grad():
                return map_tensors(item, lambda arg, value: self._tensor(micro_batch, arg, value))
        except Exception as error:
            session.stop(error)
            return item

    def _tensor(self, micro_batch: int, arg: str, tensor: torch.Tensor) -> torch.Tensor:
        session, batch = self._model.session, self._batch
        self.tensors += 1
        rows = tensor.dim() > 0 and tensor.shape[0] == batch.micro_batch_size
        if not rows:
            # One value a micro-batch and not a part of a batch: its number makes it another tensor.
            arg = f"{arg}@{micro_batch}"
        place: dict[str, Any] = dict(
            batch_dim=0 if rows else -1, batch_global=batch.global_rows if rows else 0
        )
        row_begin = micro_batch * batch.micro_batch_size if rows else 0
        if not self._repeated:
            session.record(
                "data",
                "data",
                arg,
                tensor,
                iteration=self._iteration,
                pass_="forward",
                micro_batch=micro_batch,
                row_begin=row_begin,
                always=True,
                **place,
            )
        if self._graft is None:
            return tensor
        spec = session.specs.get("data", "data", arg, tensor, "", **place)
        return self._graft.item(
            arg,
            tensor,
            spec,
            iteration=self._iteration,
            micro_batch=micro_batch,
            row_begin=row_begin,
            counted=not self._repeated,
        )


def trace_losses(model: Model, forward_step: Callable[..., Any]) -> Callable[..., Any]:
    """The user's forward step, whose loss function records what it returns."""

    @functools.wraps(forward_step)
    def traced(*args: Any, **kwargs: Any) -> Any:
        result = forward_step(*args, **kwargs)
        if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
            return result
        output, loss_function = result
        return output, _recording(model, model.last_moment, loss_function)

    return traced


def _recording(
    model: Model, moment: Moment | None, loss_function: Callable[..., Any]
) -> Callable[..., Any]:
    record = model.session.guarded(_record_sum)

    def traced(*args: Any, **kwargs: Any) -> Any:
        returned = loss_function(*args, **kwargs)
        if moment is not None and not kwargs and isinstance(returned, tuple):
            record(model, moment, returned)
        return returned

    return traced


def _record_sum(model: Model, moment: Moment, returned: tuple[Any, ...]) -> None:
    """(loss, tokens, report), or the older (loss, report) where the loss is a mean already."""
    if len(returned) == 3:
        _record(model, moment, "sum", returned[0], 1)
        _record(model, moment, "tokens", returned[1], 1)
    # What a sum is divided by is the schedule's to say; of tokens, the last reduction's.
    summed = len(returned) == 3 and model.config.calculate_per_token_loss
    model.moment_of_loss = None if summed else moment


def record_loss(model: Model, made: Any) -> None:
    """What the schedule made of the loss, which is what gradients are of: divided by its tokens and
    by the micro-batches, and averaged over the ranks of dp and cp when gradients are."""
    moment, model.moment_of_loss = model.moment_of_loss, None
    output = made[0] if isinstance(made, tuple) and made else None
    loss = output[0] if isinstance(output, list) and output else output
    if moment is None or not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        return
    size = model.topology.size
    _record(model, moment, "value", loss, size["dp"] * size["cp"])


def _record(model: Model, moment: Moment, arg: str, value: Any, divisor: int) -> None:
    """Terms of a sum: one a micro-batch, on each rank of dp and cp."""
    terms = model.topology.placements(**model.topology.terms("dp", "cp"))
    model.session.record(
        "loss",
        "loss",
        arg,
        torch.as_tensor(value).reshape(()),
        f"mb:Partial(sum) {terms}".strip(),
        iteration=moment.iteration,
        pass_="forward",
        micro_batch=moment.micro_batch,
        scale=(1, divisor),
    )
