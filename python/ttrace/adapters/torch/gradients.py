"""What the backwards of one iteration bring, by the names of parameters.

Sums of terms wait here until they are given out, once an iteration; from then on it is known what
the gradients were, so that changes which nobody reported show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ttrace.adapters.torch.seen_gradients import Seen, shared_storages, storage_of
from ttrace.capture.gradient_parts import GradientParts
from ttrace.capture.placed import Scale


class Gradients:
    """Of one iteration, from its first forward on. What came before that is another one's."""

    def __init__(self) -> None:
        self.loss_scale: Scale = (1, 1)  # from a gradient as backward makes it to what it means
        self.reduced_scale: Scale = (1, 1)  # the same for gradients as the optimizer finds them
        self.selected: list[str] = []  # to be given out
        # See capture/found_gradients.py.
        self.found: dict[str, torch.Tensor | None] = {}
        # Whether the loop has changed any between the last backward and giving it out.
        self.changed_early = False
        # Whether a backward has added to any since, and before the step.
        self.given_out_early = False
        self.parts = GradientParts()  # of what is a sum of several terms
        self._sums: dict[str, torch.Tensor] = {}
        self._arrived: dict[str, None] = {}  # in this order
        self._given_out: set[str] = set()
        # As they were given out, or as what is known to change them left them.
        self._expected: dict[str, Seen] = {}
        self._left: dict[str, Seen] = {}  # as the last backward left them
        self._shared_storages: set[int] = set()  # with gradients of several optimizers
        self._stepped: set[str] = set()

    # Backward

    def arrives(self, fqn: str) -> bool:
        """A term reaches a parameter. Whether it is the first."""
        self._arrived[fqn] = None
        if fqn in self._given_out and fqn not in self._stepped:
            self.given_out_early = True
        return fqn not in self._sums and fqn not in self._given_out

    @property
    def arrived(self) -> Iterable[str]:
        """Parameters that a backward has reached."""
        return self._arrived.keys()

    def find(self, fqn: str, norm: torch.Tensor | None) -> None:
        """What the parameter's gradient held before the first term was added."""
        self.found[fqn] = norm

    def add(self, fqn: str, term: torch.Tensor, measured: bool) -> None:
        """Kept on the device, in the order and precision in which torch itself adds. `measured`:
        how large it is is wanted, where there are several."""
        before = self._sums.get(fqn)
        term = term.detach()
        if measured and before is not None:
            if not self.parts.has(fqn):
                self.parts.add(fqn, before)
            self.parts.add(fqn, term)
        self._sums[fqn] = term.clone() if before is None else before + term

    def backward_over(self, gradients: Mapping[str, Any], several_optimizers: bool) -> None:
        """A backward has added to gradients, and they are reduced."""
        if several_optimizers:
            self._shared_storages = shared_storages(gradients.values())
        for fqn, gradient in gradients.items():
            self._left[fqn] = self._seen(gradient)

    def reached(self, names: set[str]) -> list[str]:
        """Those of these that backward has, in that order."""
        return [fqn for fqn in self._arrived if fqn in names]

    # Given out

    def scale_loss(self, scale: Scale) -> None:
        self.loss_scale = scale

    def select(self, names: Iterable[str], of: set[str] | None, unscaled: bool) -> None:
        """What is given out next: of all parameters, or of those `of`. `unscaled`: the loss scale
        has been taken out of what is reduced."""
        self.reduced_scale = (1, 1) if unscaled else self.loss_scale
        # In the order of arrival: the first wrong one is where a fault began.
        self.selected = [
            fqn
            for fqn in dict.fromkeys((*self._sums, *names))
            if fqn not in self._given_out and (of is None or fqn in of)
        ]
        self._given_out.update(self.selected)

    def take_sums(self) -> Iterator[tuple[str, torch.Tensor]]:
        for fqn in self.selected:
            total = self._sums.pop(fqn, None)
            if total is not None:
                yield fqn, total

    def sums(self) -> dict[str, torch.Tensor]:
        """Those that wait to be given out."""
        return dict(self._sums)

    def order(self) -> list[str]:
        """Of those that are given out, in which they arrived."""
        chosen = set(self.selected)
        return [fqn for fqn in self._arrived if fqn in chosen]

    def give_out(self, fqn: str, gradient: Any) -> None:
        left = self._left.get(fqn)
        self._expected[fqn] = self._seen(gradient)
        # A scaler takes its scale out of them: that is known, and what else is done is not.
        if self.loss_scale == (1, 1) and left is not None and left.differs_from(gradient):
            self.changed_early = True

    # Until the step

    def changed_knowingly(self, gradients: Mapping[str, Any]) -> None:
        """What has just changed gradients is known, and noted."""
        for fqn in self._expected:
            if fqn in gradients:
                self._expected[fqn] = self._seen(gradients[fqn])

    def changed_otherwise(self, gradients: Mapping[str, Any]) -> bool:
        """Whether a step would find other gradients than were given out."""
        return any(
            fqn in gradients and expected.differs_from(gradients[fqn])
            for fqn, expected in self._expected.items()
        )

    def step_over(self, names: Iterable[str]) -> None:
        """An optimizer has stepped these: what reaches them now is for another iteration, and what
        is done to them then changes no step of this one."""
        self._stepped.update(names)
        for fqn in self._stepped:
            self._expected.pop(fqn, None)

    def _seen(self, gradient: Any) -> Seen:
        shared = self._shared_storages
        return Seen(gradient, bool(shared) and storage_of(gradient) in shared)
