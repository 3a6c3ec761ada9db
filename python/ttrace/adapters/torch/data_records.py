"""What is recorded of the data of a loop, and noted of its rows."""

from __future__ import annotations

import torch

from ttrace.adapters.torch import fed_rows
from ttrace.adapters.torch.data_items import Item, Use
from ttrace.adapters.torch.deferred_session import DeferredSession
from ttrace.adapters.torch.fed_rows import Fed
from ttrace.adapters.torch.reference_data import place_of


def record_item(session: DeferredSession, item: Item, use: Use) -> None:
    note_fed(session, item.fed, use, item.rows or 0)
    for arg, value in item.own.items():
        record_tensor(session, item.rows, use, arg, value, item.given.get(arg, value))


def record_tensor(
    session: DeferredSession,
    rows: int | None,
    use: Use,
    arg: str,
    value: torch.Tensor,
    given: torch.Tensor,
) -> None:
    """`given` is what the loop got: the model says of its inputs where they lie."""
    place = place_of(session, rows, use, arg, value)
    session.record(
        "data",
        "data",
        place.pop("arg"),
        value,
        session.now.placements_of_argument(given),
        rows=rows or 0,
        moment=use.moment,
        batch_dim=0 if rows is not None and value.shape[:1] == (rows,) else -1,
        pass_="forward",
        always=True,
        **place,
    )


def note_fed(session: DeferredSession, tensors: list[Fed], use: Use, rows: int) -> None:
    topology = session.topology
    if topology.device_mesh is not None:
        return  # parts of rows may lie on other ranks
    fed_rows.note(
        session,
        tensors,
        fed="data",
        iteration=use.iteration,
        micro_batch=use.index * topology.dp_size + topology.dp_rank,
        call=use.call,
        rows=rows,
        calls={},
    )


def note_target(session: DeferredSession, target: torch.Tensor, use: Use) -> None:
    topology = session.topology
    if topology.device_mesh is not None:
        return
    fed_rows.note_tensors(
        session,
        fed_rows.fed({"target": target}),
        fed="data",
        iteration=use.iteration,
        micro_batch=use.index * topology.dp_size + topology.dp_rank,
        call=use.call,
    )
