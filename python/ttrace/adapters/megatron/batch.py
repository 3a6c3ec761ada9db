"""What enters and leaves an iteration: items of the data iterator, and losses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ttrace.adapters.megatron.model import Model
from ttrace.capture import source_lines
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

    note_function = model.session.guarded(source_lines.note_function)

    @functools.wraps(forward_step)
    def traced(*args: Any, **kwargs: Any) -> Any:
        result = forward_step(*args, **kwargs)
        if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
            return result
        output, loss_function = result
        if model.session.recording:
            note_function(model.session, "loss", loss_function)
        return output, _recording(model, model.last_moment, loss_function)

    return traced


def _recording(
    model: Model, moment: Moment | None, loss_function: Callable[..., Any]
) -> Callable[..., Any]:
    keep = model.session.guarded(_keep_loss)

    def traced(*args: Any, **kwargs: Any) -> Any:
        returned = loss_function(*args, **kwargs)
        if moment is not None and not kwargs and isinstance(returned, tuple):
            keep(model, moment, returned)
        return returned

    return traced


class MadeLoss(NamedTuple):
    """What a loss function returned, before the schedule divides it in place."""

    moment: Moment
    total: torch.Tensor | None  # a sum over tokens, or None: a mean already
    tokens: torch.Tensor | None


def _keep_loss(model: Model, moment: Moment, returned: tuple[Any, ...]) -> None:
    """(loss, tokens, report), or the older (loss, report) where the loss is a mean already."""
    total = tokens = None
    if len(returned) == 3:
        total = returned[0].detach().clone()
        tokens = torch.as_tensor(returned[1]).detach().clone()
    model.keep_loss(MadeLoss(moment, total, tokens))


def record_loss(model: Model, made: Any) -> None:
    """The sum that the loss function returned, and what the schedule made of it, which is what
    gradients are of: divided by tokens and micro-batches, and averaged over the ranks of dp and cp
    when gradients are. A sum per token is divided with the gradients: there it has no value."""
    loss = model.take_loss()
    if loss is None:
        return
    output = made[0] if isinstance(made, tuple) and made else None
    value = output[0] if isinstance(output, list) and output else output
    is_scalar = isinstance(value, torch.Tensor) and value.numel() == 1
    summed = loss.total is not None and model.config.calculate_per_token_loss
    of_all = is_scalar and not summed and _counts_all(model, loss, value)
    if loss.total is not None:
        terms = ("dp",) if of_all else ("dp", "cp")
        _record(model, loss.moment, "sum", loss.total, terms, 1)
        _record(model, loss.moment, "tokens", loss.tokens, terms, 1)
    if is_scalar and not summed:
        size = model.topology.size
        # Each of these ranks has the loss of all, times their number.
        parts = size["dp"] * size["cp"] * (size["cp"] if of_all else 1)
        _record(model, loss.moment, "value", value, ("dp", "cp"), parts)


def _counts_all(model: Model, loss: MadeLoss, value: torch.Tensor) -> bool:
    """Whether losses and tokens are those of all context-parallel ranks: the schedule of
    megatron-core 0.12 then multiplies by their number."""
    cp = model.topology.size["cp"]
    if cp == 1 or loss.total is None or loss.tokens is None:
        return False
    batches = loss.moment.batch.micro_batches
    own = float(loss.total) / max(1.0, float(loss.tokens)) / batches
    return own != 0 and math.isclose(float(value) / own, cp, rel_tol=1e-3)


def _record(
    model: Model, moment: Moment, arg: str, value: Any, terms: tuple[str, ...], divisor: int
) -> None:
    """Terms of a sum: one a micro-batch, on each rank of `terms`; copies on others."""
    words = {**dict.fromkeys(("dp", "cp"), "Replicate"), **model.topology.terms(*terms)}
    model.session.record(
        "loss",
        "loss",
        arg,
        torch.as_tensor(value).reshape(()),
        f"mb:Partial(sum) {model.topology.placements(**words)}".strip(),
        iteration=moment.iteration,
        pass_="forward",
        micro_batch=moment.micro_batch,
        scale=(1, divisor),
    )
