"""What the reruns of an iteration will take, as its own call shows."""

from __future__ import annotations

import torch

from ttrace.capture.cost import Cost
from ttrace.capture.free_memory import Peak


class RerunCost:
    """Of one rank."""

    def __init__(self) -> None:
        self._cost: Cost | None = Cost()  # until it is taken, before the first rerun
        self._peak: Peak | None = None  # of the current iteration's real call, if legs will follow

    def watch(self, device: torch.device) -> None:
        """A real call begins that reruns will follow."""
        self._peak = Peak(device)

    def count(
        self, role: str, micro_batch: int, size: int, fp32_size: int, needs_values: bool
    ) -> None:
        """A tensor that was recorded."""
        if role == "grad_output" and self._peak is not None:
            self._peak.sample(micro_batch)
        if self._cost is not None:
            self._cost.add(role, size, fp32_size, needs_values)

    def memory_above_now(self) -> int:
        """Bytes that the real call, which is over, took beyond what is in use."""
        peak, self._peak = self._peak, None
        return 0 if peak is None else peak.above_now()

    def take(self) -> Cost | None:
        """All that was counted, once: nothing is counted any more."""
        cost, self._cost = self._cost, None
        return cost
