"""What is recorded of the data of a loop, and noted of its rows."""

from __future__ import annotations

import torch

from ttrace.adapters.torch import fed_rows
from ttrace.adapters.torch.data_items import Item, Use
from ttrace.adapters.torch.fed_rows import Fed
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.reference_data import counts_rows, place_of


def record_item(session: LoopSession, item: Item, use: Use) -> None:
    note_fed(session, item.fed, use, item.rows or 0)
    for arg, value in item.own.items():
        lies = session.now.placements_of_argument(item.given.get(arg, value))
        record_tensor(session, item.rows, use, arg, value, lies)


def record_tensor(
    session: LoopSession,
    rows: int | None,
    use: Use,
    arg: str,
    value: torch.Tensor,
    placements: str,
) -> None:
    """`placements`: the model says of its inputs where they lie, or the loop has."""
    place = place_of(session, rows, use, arg, value)
    has_rows = counts_rows(rows, value, placements, session.topology)
    session.record(
        "data",
        "data",
        place.pop("arg"),
        value,
        placements,
        batch_dim=0 if has_rows else -1,
        batch_global=rows or 0,
        batch=session.now.micro_batches.batch_of(use.moment),
        pass_="forward",
        always=True,
        **place,
    )


def note_fed(session: LoopSession, tensors: list[Fed], use: Use, rows: int) -> None:
    topology = session.topology
    if topology.cuts_tensors:
        return  # parts of rows may lie on other ranks
    fed_rows.note(
        session,
        tensors,
        fed="data",
        iteration=use.iteration,
        micro_batch=use.index * topology.batch_parts + topology.batch_part,
        call=use.call,
        rows=rows,
        calls={},
    )


def note_target(session: LoopSession, target: torch.Tensor, use: Use) -> None:
    topology = session.topology
    if topology.cuts_tensors:
        return
    fed_rows.note_tensors(
        session,
        fed_rows.fed({"target": target}),
        fed="data",
        iteration=use.iteration,
        micro_batch=use.index * topology.batch_parts + topology.batch_part,
        call=use.call,
    )
