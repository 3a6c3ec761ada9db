"""Which forwards of the model belong to one micro-batch.

A loop may call its model several times before it calls backward (two views of a pair, chosen and
rejected answers): these are calls within one micro-batch. A new micro-batch begins with the first
forward after a parameter's gradient has arrived, or after another item of the data was taken: a
loop may also add up the losses of several items and call backward once.
"""

from __future__ import annotations

from ttrace.adapters.torch.attached_root import AttachedRoot
from ttrace.adapters.torch.calls_of_root import CallsOfRoot
from ttrace.adapters.torch.topology import Topology
from ttrace.capture.placed import Batch, Moment, Scale


class MicroBatches:
    """Of one iteration. Where a loop calls several models, each has its own (calls_of_root.py)."""

    def __init__(self, iteration: int, leg: str, before: MicroBatches | None) -> None:
        """`before`: of the iteration before, or of the run of this one that a leg repeats."""
        self.count = 0
        self.calls = 0  # of the model
        self.last: Moment | None = None
        self.last_number = 0  # of the micro-batch that `last` is in, among all of the iteration
        self._iteration = iteration
        self._leg = leg
        self._before = before
        self._closed = True  # the next forward begins a new one
        self._gap = 0  # how often they were closed
        self.part = 0  # how many optimizers have stepped
        self._roots: dict[str, CallsOfRoot] = {}  # where there are several
        self._parts: dict[int, tuple[str, int]] = {}  # root and part of moments, by id
        self._batches: dict[tuple[str, int], int] = {}  # of these, by number
        self._open: list[Moment] = []
        self._loss_scale: Scale = (1, 1)
        self._scales: list[Scale] = []  # of each forward whose loss had its backward
        self._carried: list[Scale] = []  # the same, of the iteration that runs again

    def batch_of(self, moment: Moment | None) -> int:
        """The number of the batch that a forward is of, in `counts`. 0, and of None: that of the
        iteration."""
        return self._batches.get(self._parts.get(id(moment), ("", 0)), 0)

    def counts(self) -> list[int]:
        """How many micro-batches each batch has."""
        others = [self._roots[root].count(part) for root, part in self._batches]
        return [self.count, *others]

    def close(self) -> None:
        """A gradient arrived, or data was taken: what ran until now is complete."""
        self._closed = True
        self._gap += 1

    def end_part(self) -> None:
        """An optimizer has stepped."""
        self.part += 1

    def forget_last(self) -> None:
        """A loss or a gradient now is of no forward that was seen."""
        self.last = None

    @property
    def next_is_new(self) -> bool:
        return self._closed or self.last is None

    @property
    def place(self) -> tuple[int, int]:
        """Of a forward that comes now: see `again`."""
        return self.part, self._gap

    def forward(
        self, topology: Topology, rows: int, rows_of_source: int, root: AttachedRoot
    ) -> Moment:
        """The Moment of a forward of `root` with `rows` rows. `rows_of_source`: of the global batch
        of the run that values are taken from, or 0."""
        before = None if self.next_is_new else self.last
        if before is None:
            self.count += 1
        if self.calls < len(self._carried):
            self._loss_scale = self._carried[self.calls]
        self.calls += 1
        self._closed = False
        self.last_number = (self.count - 1) * topology.batch_parts + topology.batch_part
        if root.name:
            moment = self._of_root(topology, rows, rows_of_source, root)
        else:
            batch = self._batch(topology, rows, rows_of_source, self.count, self._earlier("", 0))
            # The k-th use of a module within a micro-batch, whichever forward it is in.
            calls = {} if before is None else before.calls
            call = 0 if before is None else before.call + 1
            moment = Moment(self._iteration, self._leg, self.last_number, batch, calls, call)
        self.last = moment
        self._open.append(moment)
        return moment

    def _of_root(
        self, topology: Topology, rows: int, rows_of_source: int, root: AttachedRoot
    ) -> Moment:
        of_root = self._roots.setdefault(root.name, CallsOfRoot())
        begun = of_root.begin(*self.place)
        earlier = self._earlier(root.name, begun.part)
        batch = self._batch(topology, rows, rows_of_source, begun.count, earlier)
        number = (begun.count - 1) * topology.batch_parts + topology.batch_part
        call = begun.call * root.roots + root.number
        moment = Moment(self._iteration, self._leg, number, batch, of_root.calls, call)
        key = self._parts[id(moment)] = root.name, begun.part
        self._batches.setdefault(key, len(self._batches) + 1)
        return moment

    def _earlier(self, root: str, part: int) -> int:
        """How many there were the last time."""
        if self._before is None or not root:
            return 0 if self._before is None else self._before.count
        calls = self._before._roots.get(root)
        return 0 if calls is None else calls.count(part)

    def _batch(
        self, topology: Topology, rows: int, rows_of_source: int, count: int, earlier: int
    ) -> Batch:
        # A lower bound, which noise needs now. Records wait for the truth.
        counts = max(count, earlier)
        total = max(counts * topology.batch_parts * rows, rows_of_source)
        # How many there will be only the source can tell: it may well be more than until now.
        each = topology.batch_parts * rows  # 0: this rank has no rows
        known = max(counts, total // each) if rows_of_source and each else 0
        return Batch(total, rows, known, self._scale(topology))

    def carry_scale_of(self, other: MicroBatches) -> None:
        """Losses are scaled as in the other iteration, which may not scale all of them."""
        self._loss_scale, self._carried = other._loss_scale, other._scales

    def backward_begins(self) -> None:
        """Of losses of what was put out until now."""
        self._scales += [self._loss_scale] * (self.calls - len(self._scales))

    def again(self, new: bool, place: tuple[int, int]) -> None:
        """The forward that follows begins a micro-batch, or not, as it did the first time."""
        self._closed = new
        self.part, self._gap = place

    def scale_loss(self, scale: Scale, topology: Topology) -> None:
        """From now on gradients are 1 / `scale` times what they mean."""
        self._loss_scale = scale
        for moment in self._open:
            moment.change_batch(grad_scale=self._scale(topology))

    def _scale(self, topology: Topology) -> Scale:
        numerator, denominator = self._loss_scale
        return numerator, denominator * topology.reduction_parts
