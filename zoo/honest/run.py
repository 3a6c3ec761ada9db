"""What the loops of this folder share: options that say how a global batch is dealt out among
ranks, padded and averaged, and one fault of the candidate, planted where such faults are made.

Whatever the options, an honest loop computes the same on any number of ranks. `scripts/honest.py
--verify` holds each draw to that, in float64.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from dealing import DEALS, deal
from hashes import Hashes
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import ttrace

PADS = ("none", "longest", "longest-left", "fixed", "fixed-left")
SCALES = ("mean", "global", "hook", "after")
FAULTS = ("rows", "same", "padding", "lengths", "factor", "hook", "statistic", "noise", "labels",
          "pairs")  # fmt: skip
LONGEST = 10


class Run:
    """The options of a run, its ranks and its data."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--deal", choices=DEALS, default="contiguous")
        parser.add_argument("--pad", choices=PADS, default="none")
        parser.add_argument("--scale", choices=SCALES, default="mean")
        parser.add_argument("--accumulate", type=int, default=1)
        parser.add_argument("--uneven", action="store_true", help="the second batch has five rows")
        parser.add_argument("--fault", choices=FAULTS)
        self.options = parser.parse_args()
        self.rank, self.ranks = 0, 1
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
            self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.sizes = (8, 5, 8) if self.options.uneven else (8, 8, 8)
        self.items = sum(self.sizes)
        self.losses: list[torch.Tensor] = []
        self.data = torch.Generator().manual_seed(1)
        self.hashes = Hashes() if "HONEST_HASHES" in os.environ else None
        torch.manual_seed(0)

    def has(self, fault: str) -> bool:
        """A fault of the candidate; what one rank alone does is never wrong."""
        return self.ranks > 1 and self.options.fault == fault

    # The model.

    def model(self, net: nn.Module, **how: object) -> nn.Module:
        if self.ranks == 1:
            return net
        net = nn.parallel.DistributedDataParallel(net, **how)
        if (self.options.scale == "hook") != self.has("hook"):
            net.register_comm_hook(None, _sum)
        return net

    def attach(self, model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        ttrace.attach(model, optimizers[0] if len(optimizers) == 1 else list(optimizers))

    # The data.

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(self.items, *shape, generator=self.data)

    def integers(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, (self.items, *shape), generator=self.data)

    def lengths(self, low: int = 3, high: int = LONGEST) -> torch.Tensor:
        """Of the items; all the same where nothing is padded."""
        low = high if self.options.pad == "none" else low
        return torch.randint(low, high + 1, (self.items,), generator=self.data)

    def pad(
        self, rows: Sequence[torch.Tensor], value: float = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of unequal lengths, [rows, time, ...], and which places are data."""
        how, _, side = self.options.pad.partition("-")
        if how == "fixed":  # a row that no batch keeps, as long as the longest can be
            rows = [*rows, rows[0].new_zeros(LONGEST, *rows[0].shape[1:])]
        padded = pad_sequence(
            list(rows), batch_first=True, padding_value=value, padding_side=side or "right"
        )
        lengths = torch.tensor([len(row) for row in rows])
        places = torch.arange(padded.shape[1])
        if self.has("lengths"):
            lengths = lengths - 1
        if side == "left":
            places = places.flip(0)
        is_data = places < lengths[:, None]
        if self.has("padding"):
            is_data = torch.ones_like(is_data)
        kept = len(rows) - (how == "fixed")
        return padded[:kept], is_data[:kept]

    def labels(self, labels: torch.Tensor) -> torch.Tensor:
        """As they are, unless they are to belong to the row before."""
        return labels.roll(1, 0) if self.has("labels") else labels

    def partners(self, rows: torch.Tensor) -> torch.Tensor:
        """The second halves of pairs, as they are, unless pairs are to be mixed."""
        return rows.roll(1, 0) if self.has("pairs") else rows

    # The steps.

    def steps(self, counts: torch.Tensor | None = None) -> Iterator[Step]:
        """`counts`: how many terms of the loss each item has; 1 where nothing is said."""
        first = 0
        for number, size in enumerate(self.sizes):
            rows = list(range(first, first + size))
            yield Step(self, number, rows, counts)
            first += size

    def batches(self, number: int, rows: list[int]) -> list[list[int]]:
        if self.has("rows") and self.rank == 1:
            rows = [(row + 8) % self.items for row in rows]
        rank = 0 if self.has("same") else self.rank
        how = self.options
        return deal(rows, how.deal, rank, self.ranks, how.accumulate, number)

    def loader(self, dataset: object, collate: Callable | None = None) -> Iterator:
        """The micro-batches of all steps, in their order, by a loader of torch's."""
        order, first = [], 0
        for number, size in enumerate(self.sizes):
            order += self.batches(number, list(range(first, first + size)))
            first += size
        return iter(torch.utils.data.DataLoader(dataset, batch_sampler=order, collate_fn=collate))

    # The ranks.

    def total(self, value: torch.Tensor, is_statistic: bool = True) -> torch.Tensor:
        """Its sum over ranks, without a gradient."""
        value = value.detach().clone()
        if self.ranks > 1 and not (is_statistic and self.has("statistic")):
            dist.all_reduce(value)
        return value

    def gather(self, value: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks, with their gradients."""
        if self.ranks == 1 or self.has("statistic"):
            return value
        from torch.distributed.nn.functional import all_gather

        return torch.cat(all_gather(value))

    def end(self) -> None:
        if self.hashes is not None:
            # One write: ranks share the pipe.
            os.write(1, f"{self.hashes.line(self.rank)}\n".encode())
        losses = torch.stack(self.losses)
        if self.ranks > 1:
            dist.all_reduce(losses)
        if self.rank == 0:
            print("losses", json.dumps(losses.tolist()), flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()


class Step:
    """One step of the optimizer: its micro-batches, and how their losses are averaged."""

    def __init__(self, run: Run, number: int, rows: list[int], counts: torch.Tensor | None) -> None:
        self.run, self.number = run, number
        self._first = rows[0]
        self._micro_batches = run.batches(number, rows)
        mine = torch.tensor([row for batch in self._micro_batches for row in batch])
        own = torch.tensor(len(mine)) if counts is None else counts[mine].sum()
        self.count = own if run.has("factor") else run.total(own, is_statistic=False)
        self.loss = torch.zeros(())

    def micro_batches(self, *models: nn.Module) -> Iterator[list[int]]:
        """The rows of each. Models reduce their gradients in the last one."""
        for number, rows in enumerate(self._micro_batches):
            with contextlib.ExitStack() as quiet:
                for model in models:
                    if number + 1 < len(self._micro_batches) and hasattr(model, "no_sync"):
                        quiet.enter_context(model.no_sync())
                yield rows

    def noise(self, rows: list[int], *shape: int) -> torch.Tensor:
        """Of each row, whoever has it."""
        generator = torch.Generator().manual_seed(100 + self.number)
        places = torch.tensor(rows) - self._first
        if self.run.has("noise"):
            places = torch.arange(len(rows))
        elif self.run.has("rows"):
            places = places % 8
        return torch.randn(8, *shape, generator=generator)[places]

    def scaled(self, total: torch.Tensor, count: float | torch.Tensor) -> torch.Tensor:
        """What backward is called on: `total` is a sum of `count` terms of this micro-batch."""
        how, ranks = self.run.options.scale, self.run.ranks
        self.loss = self.loss + total.detach() / self.count
        if how == "mean":
            parts = 1 if self.run.has("factor") else len(self._micro_batches)
            return total / count / parts
        if how == "after":
            return total
        return total * (ranks if how == "global" else 1) / self.count

    def backward(self, total: torch.Tensor, count: float | torch.Tensor) -> None:
        self.scaled(total, count).backward()

    def update(self, *optimizers: torch.optim.Optimizer) -> None:
        self.scale_gradients(*optimizers)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.done()

    def scale_gradients(self, *optimizers: torch.optim.Optimizer) -> None:
        if self.run.options.scale != "after":
            return
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(self.run.ranks / self.count)

    def done(self) -> None:
        self.run.losses.append(self.loss)


def _sum(_, bucket):  # torch looks at annotations, and does not know those that are strings
    """A communication hook: gradients are summed and not averaged."""
    done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return done.then(lambda future: future.value()[0])
