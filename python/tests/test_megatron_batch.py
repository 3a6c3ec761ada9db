"""Items of a data iterator, without a run around them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ttrace.adapters.megatron.batch import DataItems


class Session:
    """Keeps what a capture would write."""

    recording = True

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.notes: list[str] = []

    def record(self, *unused: Any, row_begin: int, **unused_too: Any) -> None:
        self.rows.append(row_begin)

    def note(self, kind: str, /, **values: Any) -> None:
        self.notes.append(f"{kind}: {values['reason']}")

    def stop(self, error: Exception) -> None:
        raise error


def items(session: Session, micro_batches: int) -> DataItems:
    model = SimpleNamespace(session=session, micro_batch=lambda position: position)
    batch = SimpleNamespace(micro_batches=micro_batches, micro_batch_size=2, global_rows=4)
    return DataItems(model, batch, 0, None)  # type: ignore[arg-type]


def test_an_item_beyond_the_batch_is_handed_on_and_noted_once() -> None:
    session = Session()
    read = items(session, 2)
    for position in range(4):
        item = {"tokens": torch.ones(2, 3)}
        assert read.inspect(position, item)["tokens"] is item["tokens"]
    assert session.rows == [0, 2]
    assert session.notes == [
        "not_recorded: an iterator is read more often than there are micro-batches"
    ]


def test_where_the_number_of_micro_batches_is_not_known_all_items_are_the_batchs() -> None:
    session = Session()
    read = items(session, 0)
    for position in range(2):
        read.inspect(position, {"tokens": torch.ones(2, 3)})
    assert session.rows == [0, 2]
    assert not session.notes
