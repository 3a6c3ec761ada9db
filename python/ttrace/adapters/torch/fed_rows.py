"""What a forward of the model, or an item of the data, holds row by row.

A row of a batch is known by its contents, whatever rank has it, in whatever order rows were dealt
and however far they were padded. The digests are made natively; what is decided by them is decided
there, and in the check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ttrace import _native
from ttrace.adapters.torch.dtensors import is_dtensor
from ttrace.capture.nested import is_keyed, keyed_items, named_tensors

if TYPE_CHECKING:
    from ttrace.adapters.torch.loop_session import LoopSession

_MOST_ROWS = 8192  # whose digests fit into a line of the index
_MOST_BYTES = 1 << 28  # of a tensor that is looked at
_LIST = -1  # the dimension of a list: each of its items is a row

_Digests = tuple[str, str, str, str, str]  # src/numeric/row_digests.h
_NONE: _Digests = ("", "", "", "", "")


class Fed(NamedTuple):
    """One tensor along one dimension."""

    arg: str
    dim: int
    rows: int
    width: int  # of the other of the first two dimensions, 0: it has none
    relative: bool  # it counts within the batch of its rank
    digests: _Digests


class Space(NamedTuple):
    """Rows of this rank that the reference has: as many, of how many, and which."""

    count: int
    total: int
    places: list[int]
    is_first: bool  # they are counted by the first dimension of some tensor


class Placed(NamedTuple):
    """Where the reference has the rows of one forward."""

    spaces: list[Space]
    foreign: list[int]  # rows that it does not have
    padded_at_begin: bool

    @property
    def found(self) -> bool:
        return bool(self.spaces) and not self.foreign


def fed(values: Mapping[str, Any]) -> list[Fed]:
    """Of all tensors in these values, by name. Lists of tensors are rows as well."""
    tensors = {
        name: tensor
        for argument, value in values.items()
        for name, tensor in named_tensors(value, argument)
        if _is_read(tensor)
    }
    found = []
    for name, tensor in tensors.items():
        relative = _counts_within_batch(tensor, tensors)
        found.append(_along(name, tensor, 0, relative))
        if tensor.dim() > 1:
            found.append(_along(name, tensor, 1, relative))
    for argument, value in values.items():
        found.extend(_lists(argument, value))
    return found


def prefixed(tensors: list[Fed], word: str) -> list[Fed]:
    return [one._replace(arg=f"{word}{one.arg}") for one in tensors]


def note(
    session: LoopSession,
    tensors: list[Fed],
    *,
    fed: str,
    iteration: int,
    micro_batch: int,
    call: int,
    rows: int,
    calls: Mapping[str, int],
    root: str = "",
) -> None:
    """`fed`: "data" for an item, "" for what the model is given. `calls`: of modules, before it.
    `root`: the name of what is called, where a loop calls several models."""
    where = {"fed": fed, "iteration": iteration, "micro_batch": micro_batch, "call": call}
    called = {"root": root} if root else {}
    session.note("fed_call", **where, **called, rows=rows, calls=dict(calls))
    note_tensors(session, tensors, **where)


def note_tensors(session: LoopSession, tensors: list[Fed], **where: Any) -> None:
    for one in tensors:
        whole, without_end, without_begin, cut_end, cut_begin = one.digests
        values: dict[str, Any] = {"arg": one.arg, "dim": one.dim, "rows": one.rows}
        values["width"] = one.width
        if one.relative:
            values["relative"] = True
        if whole:
            values["whole"] = whole
        if without_end:
            values |= {"without_end": without_end, "without_begin": without_begin}
        if cut_end:
            values |= {"cut_end": cut_end, "cut_begin": cut_begin}
        session.note("fed_rows", **where, **values)


def _is_read(tensor: torch.Tensor) -> bool:
    return (
        not is_dtensor(tensor)
        and not isinstance(tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.dim() > 0
        and tensor.numel() > 0
        and tensor.numel() * tensor.element_size() <= _MOST_BYTES
    )


def _along(name: str, tensor: torch.Tensor, dim: int, relative: bool) -> Fed:
    rows = tensor.shape[dim]
    width = tensor.shape[1 - dim] if tensor.dim() > 1 else 0
    if rows > _MOST_ROWS:
        return Fed(name, dim, rows, width, relative, _NONE)
    digests = _digests(tensor.detach().movedim(dim, 0), rows)
    if width < 2:
        digests = (digests[0], "", "", "", "")
    elif not _may_be_tokens(tensor):
        digests = (*digests[:3], "", "")
    return Fed(name, dim, rows, width, relative, digests)


def _may_be_tokens(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and not tensor.is_floating_point() and not tensor.is_complex()


def _digests(tensor: torch.Tensor, rows: int) -> _Digests:
    data = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    size = data.element_size()
    return _native.digest_rows(data.data_ptr(), data.numel() * size, rows, size)


def _lists(name: str, value: Any) -> Iterator[Fed]:
    """Sequences of which each item holds tensors, at any depth."""
    if is_keyed(value):
        for key, item in keyed_items(value):
            yield from _lists(f"{name}.{key}" if name else str(key), item)
    if not isinstance(value, list | tuple) or not value or len(value) > _MOST_ROWS:
        return
    for i, item in enumerate(value):
        yield from _lists(f"{name}.{i}" if name else str(i), item)
    keys = [_key(item) for item in value]
    if all(keys):
        yield Fed(name, _LIST, len(keys), 0, False, ("".join(keys), *_NONE[1:]))


def _key(item: Any) -> str:
    """One digest of all tensors in it; nothing if there are none, or one cannot be read."""
    texts = []
    for name, tensor in named_tensors(item, ""):
        if tensor.dim() > 0 and not _is_read(tensor):
            return ""
        row = tensor.detach().reshape(1, -1)
        texts.append(f"{name} {tuple(tensor.shape)} {_digests(row, 1)[0]};")
    if not texts:
        return ""
    text = torch.frombuffer(bytearray("".join(texts).encode()), dtype=torch.uint8)
    return _digests(text.reshape(1, -1), 1)[0]


def _counts_within_batch(tensor: torch.Tensor, others: Mapping[str, torch.Tensor]) -> bool:
    """Offsets, the numbers of graphs, edges: indices into what else this batch holds."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        return False
    if tensor.dim() == 2 and tensor.shape[0] == 1:
        tensor = tensor[0]  # sequences laid end to end
    if tensor.dim() == 1:
        if tensor.numel() < 2 or int(tensor[0]) != 0:
            return tensor.numel() == 1 and int(tensor[0]) == 0
        return bool((tensor.diff() >= 0).all())
    if tensor.dim() != 2 or tensor.shape[0] != 2 or int(tensor.min()) < 0:
        return False
    largest = int(tensor.max())
    return any(
        other is not tensor and other.shape[0] > max(2, largest) for other in others.values()
    )
