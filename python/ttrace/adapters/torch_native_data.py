"""Items of a DataLoader: recorded, and replaced by the reference's where data is grafted.

The k-th item that an iteration takes belongs to its k-th call of the model. Whether that was so is
known when the iteration is over; if not (a loop that fetches ahead), its items are not recorded.
Only the loader that is read first counts: others are for validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ttrace.adapters.torch_native_patches import Patches
from ttrace.adapters.torch_native_session import DeferredSession
from ttrace.capture.graft import Graft
from ttrace.capture.replay_data import map_tensors


class DataItems:
    """Sees what the iterators of all DataLoaders of the process hand out."""

    def __init__(
        self, session: DeferredSession, patches: Patches, ensure_started: Callable[[], None]
    ) -> None:
        self.graft: Graft | None = None
        self.taken = 0  # in this iteration
        self.rows: int | None = None  # of the last item
        self._session = session
        self._ensure_started = ensure_started
        self._dataset: Any = None
        patches.wrap_result(_BaseDataLoaderIter, "__next__", self._item)

    def begin_iteration(self) -> None:
        self.taken = 0
        self.rows = None

    def _item(self, iterator: Any, item: Any) -> Any:
        """What the loop gets in place of `item`. Never raises."""
        session = self._session
        if not session.due:
            return item
        if self._dataset is None:
            self._dataset = iterator._dataset
        if iterator._dataset is not self._dataset or not torch.is_grad_enabled():
            return item
        self._ensure_started()
        try:
            position, self.taken = self.taken, self.taken + 1
            sizes: list[int] = []
            map_tensors(item, lambda arg, value: (sizes.extend(value.shape[:1]), value)[1])
            self.rows = sizes[0] if sizes else None
            with torch.no_grad():
                return map_tensors(item, lambda arg, value: self._tensor(position, arg, value))
        except Exception as error:
            session.stop(error)
            return item

    def _tensor(self, position: int, arg: str, tensor: torch.Tensor) -> torch.Tensor:
        session, topology = self._session, self._session.topology
        micro_batch = position * topology.dp_size + topology.dp_rank
        has_rows = self.rows is not None and tensor.shape[:1] == (self.rows,)
        if not has_rows:
            # One value a micro-batch and not a part of a batch: a tensor of its own.
            arg = f"{arg}@{micro_batch}"
        row_begin = micro_batch * tensor.shape[0] if has_rows else 0
        dim = 0 if has_rows else -1
        session.record(
            "data",
            "data",
            arg,
            tensor,
            iteration=session.iteration,
            pass_="forward",
            micro_batch=micro_batch,
            row_begin=row_begin,
            batch_dim=dim,
            always=True,
        )
        if self.graft is None or not self.graft.data:
            return tensor
        rows = self.graft.rows_of_data(arg, session.iteration) if has_rows else 0
        spec = None
        if rows is not None and row_begin + (tensor.shape[0] if has_rows else 0) <= rows:
            spec = session.specs.get(
                "data", "data", arg, tensor, "", batch_dim=dim, batch_global=rows
            )
        return self.graft.item(
            arg,
            tensor,
            spec,
            iteration=session.iteration,
            micro_batch=micro_batch,
            row_begin=row_begin,
        )
