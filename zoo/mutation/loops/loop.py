"""A plain loop in parts, each a method: a fault is another function in the place of one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ttrace
from mutation.loops.options import LoopOptions
from mutation.loops.tasks import IGNORED, TASKS, Tensors

_WEIGHT = 0.05  # of the loss's second term
_BUCKET_MB = 0.005  # so that these small models have several
_DECAY = 0.1


@dataclass(frozen=True)
class Batch:
    given: Tensors
    labels: torch.Tensor


class PlainLoop:
    """Of one process; with ranks, its process group exists."""

    def __init__(self, options: LoopOptions) -> None:
        self.options = options
        self.rank = int(os.environ.get("RANK", "0"))
        self.ranks = options.ranks
        self.iteration = 0
        self.weight = _WEIGHT
        self.count: torch.Tensor | None = None
        self.task = TASKS[options.model]()
        torch.manual_seed(1)
        self.net = self.task.net()
        self.model: nn.Module = self.net
        self._wrap()
        self.optimizer = self._make_optimizer()
        self.scaler: Any = None
        if options.precision == "fp16":
            self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def attach(self) -> None:
        ttrace.attach(self.model, self.optimizer)

    # Before the first step

    def _wrap(self) -> None:
        if self.options.tensor and self.ranks > 1:
            from torch.distributed.device_mesh import init_device_mesh

            from tensor_parallel_toy import cut

            cut(
                self.net,
                init_device_mesh("cpu", (self.ranks,), mesh_dim_names=("tp",)),
                self.options.sequence,
            )
        elif self.ranks > 1:
            self.model = DistributedDataParallel(self.net, bucket_cap_mb=_BUCKET_MB)
            if self.options.hook:
                self.model.register_comm_hook(self, reduce_bucket)

    def _make_optimizer(self) -> torch.optim.Optimizer:
        """Vectors do not decay."""
        own = list(self.net.parameters())
        groups = [
            {"params": [p for p in own if p.dim() > 1], "weight_decay": _DECAY},
            {"params": [p for p in own if p.dim() <= 1], "weight_decay": 0.0},
        ]
        name = self.options.optimizer
        if name == "sgd":
            return torch.optim.SGD(groups, lr=0.05, momentum=0.9)
        kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
        return kind(groups, lr=1e-3)

    # A step

    def step(self) -> None:
        batches = self.batches()
        self.count = self.counted(batches)
        for number, batch in enumerate(batches):
            self.micro_batch(number, batch)
        self.clip()
        self.update()
        self.clear()
        self.iteration += 1

    def batches(self) -> list[Batch]:
        """This rank's micro-batches."""
        chance = torch.Generator().manual_seed(self.iteration)
        given, labels = self.task.batch(chance)
        own = slice(0, None)
        parts, ranks = self.options.accumulate, self.ranks if self.options.data_parallel else 1
        rows = len(labels) // parts // ranks
        found = []
        for number in range(parts):
            first = (number * ranks + (self.rank if ranks > 1 else 0)) * rows
            own = slice(first, first + rows)
            found.append(Batch(tuple(value[own] for value in given), labels[own]))
        return found

    def counted(self, batches: list[Batch]) -> torch.Tensor | None:
        """Terms of all losses of the step."""
        if not self.task.counts:
            return None
        count = torch.stack([(batch.labels != IGNORED).sum() for batch in batches]).sum()
        if self.options.data_parallel:
            dist.all_reduce(count)
        return count

    def micro_batch(self, number: int, batch: Batch) -> None:
        with self.synced(number == self.options.accumulate - 1):
            self.backward(self.loss(self.forward(batch), batch.labels))

    @contextlib.contextmanager
    def synced(self, wanted: bool) -> Iterator[None]:
        """With gradients reduced in this micro-batch, or not."""
        quiet = isinstance(self.model, DistributedDataParallel) and not wanted
        with self.model.no_sync() if quiet else contextlib.nullcontext():
            yield

    def forward(self, batch: Batch) -> torch.Tensor:
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        kind = kinds.get(self.options.precision)
        with torch.autocast("cpu", kind) if kind else contextlib.nullcontext():
            return self.model(*batch.given)

    def loss(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        main, beside = self.main(output, labels), self.beside(output)
        return self.share(main) + self.weight * beside / self.options.accumulate

    def main(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.task.main(output, labels)

    def beside(self, output: torch.Tensor) -> torch.Tensor:
        return self.task.beside(output)

    def share(self, main: torch.Tensor) -> torch.Tensor:
        """Of the loss of the whole batch, where ranks are averaged."""
        if self.count is None:
            return main / self.options.accumulate
        return main * (self.ranks if self.options.data_parallel else 1) / self.count

    def backward(self, loss: torch.Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def clip(self) -> None:
        if not self.options.clip:
            return
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.net.parameters(), self.options.clip)

    def update(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def clear(self) -> None:
        self.optimizer.zero_grad()

    def reduce(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """A bucket's gradients, in a hook."""
        values = bucket.buffer().div_(self.ranks)
        return summed(values)


def reduce_bucket(loop, bucket):  # torch looks at annotations, and does not know those of strings
    """The communication hook."""
    return loop.reduce(bucket)


def summed(values: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    done = dist.all_reduce(values, async_op=True).get_future()
    return done.then(lambda future: future.value()[0])
