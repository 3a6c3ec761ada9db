"""Which forwards of the model belong to one micro-batch.

A loop may call its model several times before it calls backward (two views of a pair, chosen and
rejected answers): these are calls within one micro-batch. A new micro-batch begins with the first
forward after a parameter's gradient has arrived, or after another item of the data was taken: a
loop may also add up the losses of several items and call backward once.
"""

from __future__ import annotations

from dataclasses import replace

from ttrace.adapters.torch.deferred_session import DeferredSession
from ttrace.capture.placed import Batch, Moment


class MicroBatches:
    """Of the current iteration."""

    def __init__(self, session: DeferredSession) -> None:
        self.count = 0  # in this iteration
        self.calls = 0  # of the model, in this iteration
        self.last: Moment | None = None
        self._session = session
        self._count_before = 0  # of the iteration before
        self._closed = True  # the next forward begins a new one
        self._open: list[Moment] = []  # forwards of this iteration
        self._loss_scale = (1, 1)

    def begin_iteration(self) -> None:
        self._count_before, self.count = self.count, 0
        self.calls = 0
        self.last = None
        self._closed = True
        self._open.clear()
        self._loss_scale = (1, 1)

    def close(self) -> None:
        """A gradient arrived, or data was taken: what ran until now is complete."""
        self._closed = True

    @property
    def next_is_new(self) -> bool:
        return self._closed or self.last is None

    def forward(self, rows: int, rows_of_source: int) -> Moment:
        """The Moment of a forward of `rows` rows. `rows_of_source`: of the global batch of the run
        that values are taken from, or 0."""
        session, topology = self._session, self._session.topology
        new = self.next_is_new
        if new:
            self.count += 1
        self.calls += 1
        self._closed = False
        # A lower bound, which noise needs now. Records wait for the truth.
        counts = max(self.count, self._count_before)
        total = max(counts * topology.dp_size * rows, rows_of_source)
        numerator, denominator = self._loss_scale
        scale = (numerator, denominator * topology.dp_size)
        # How many there will be only the source can tell: it may well be more than until now.
        each = topology.dp_size * rows  # 0: this rank has no rows
        known = max(counts, total // each) if rows_of_source and each else 0
        batch = Batch(total, rows, known, scale)
        micro_batch = (self.count - 1) * topology.dp_size + topology.dp_rank
        moment = Moment(session.iteration, session.leg, micro_batch, batch)
        if not new and self.last is not None:
            # The k-th use of a module within a micro-batch, whichever forward it is in.
            moment.calls = self.last.calls
            moment.call = self.last.call + 1
        self.last = moment
        self._open.append(moment)
        return moment

    def loss_scaled(self, numerator: int, denominator: int) -> None:
        """From now on gradients are `denominator` / `numerator` times what they mean."""
        self._loss_scale = numerator, denominator
        scale = (numerator, denominator * self._session.topology.dp_size)
        for moment in self._open:
            moment.batch = replace(moment.batch, grad_scale=scale)
