"""Which forwards of the model belong to one micro-batch.

A loop may call its model several times before it calls backward (two views of a pair, chosen and
rejected answers): these are calls within one micro-batch. A new micro-batch begins with the first
forward after a parameter's gradient has arrived, or after another item of the data was taken: a
loop may also add up the losses of several items and call backward once.
"""

from __future__ import annotations

from ttrace.adapters.torch.topology import Topology
from ttrace.capture.placed import Batch, Moment, Scale


class MicroBatches:
    """Of one iteration."""

    def __init__(self, iteration: int, leg: str, count_before: int) -> None:
        """`count_before`: of the iteration before."""
        self.count = 0
        self.calls = 0  # of the model
        self.last: Moment | None = None
        self._iteration = iteration
        self._leg = leg
        self._count_before = count_before
        self._closed = True  # the next forward begins a new one
        self._open: list[Moment] = []
        self._loss_scale: Scale = (1, 1)
        self._scales: list[Scale] = []  # of each forward whose loss had its backward
        self._carried: list[Scale] = []  # the same, of the iteration that runs again

    def close(self) -> None:
        """A gradient arrived, or data was taken: what ran until now is complete."""
        self._closed = True

    def forget_last(self) -> None:
        """A loss or a gradient now is of no forward that was seen."""
        self.last = None

    @property
    def next_is_new(self) -> bool:
        return self._closed or self.last is None

    def forward(self, topology: Topology, rows: int, rows_of_source: int) -> Moment:
        """The Moment of a forward of `rows` rows. `rows_of_source`: of the global batch of the run
        that values are taken from, or 0."""
        before = None if self.next_is_new else self.last
        if before is None:
            self.count += 1
        if self.calls < len(self._carried):
            self._loss_scale = self._carried[self.calls]
        self.calls += 1
        self._closed = False
        # A lower bound, which noise needs now. Records wait for the truth.
        counts = max(self.count, self._count_before)
        total = max(counts * topology.dp_size * rows, rows_of_source)
        # How many there will be only the source can tell: it may well be more than until now.
        each = topology.dp_size * rows  # 0: this rank has no rows
        known = max(counts, total // each) if rows_of_source and each else 0
        batch = Batch(total, rows, known, self._scale(topology))
        micro_batch = (self.count - 1) * topology.dp_size + topology.dp_rank
        if before is None:
            moment = Moment(self._iteration, self._leg, micro_batch, batch)
        else:
            # The k-th use of a module within a micro-batch, whichever forward it is in.
            calls, call = before.calls, before.call + 1
            moment = Moment(self._iteration, self._leg, micro_batch, batch, calls, call)
        self.last = moment
        self._open.append(moment)
        return moment

    def carry_scale_of(self, other: MicroBatches) -> None:
        """Losses are scaled as in the other iteration, which may not scale all of them."""
        self._loss_scale, self._carried = other._loss_scale, other._scales

    def backward_begins(self) -> None:
        """Of losses of what was put out until now."""
        self._scales += [self._loss_scale] * (self.calls - len(self._scales))

    def again(self, new: bool) -> None:
        """The forward that follows begins a micro-batch, or not, as it did the first time."""
        self._closed = new

    def scale_loss(self, scale: Scale, topology: Topology) -> None:
        """From now on gradients are 1 / `scale` times what they mean."""
        self._loss_scale = scale
        for moment in self._open:
            moment.change_batch(grad_scale=self._scale(topology))

    def _scale(self, topology: Topology) -> Scale:
        numerator, denominator = self._loss_scale
        return numerator, denominator * topology.dp_size
