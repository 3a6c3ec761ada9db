"""What the reruns of an iteration will take: counted while the first captured iteration runs, and
said before the first rerun, so that `ttrace diff` can tell its user in time."""

from __future__ import annotations

from collections.abc import Mapping

from ttrace.capture import process_messages
from ttrace.capture.settings import LegName

# Recorded once an iteration; reruns have the rest again.
_STATES = ("param", "param_updated", "optim_state", "buffer")


class Cost:
    """Of one rank, from the beginning of its capture to its first rerun."""

    def __init__(self) -> None:
        self._state_bytes = 0
        self._leg_bytes = 0
        self._fp32_leg_bytes = 0
        # Of these, what a noise leg has values of even where it is measured.
        self._kept_bytes = 0
        self._fp32_kept_bytes = 0

    def add(self, role: str, size: int, fp32_size: int, needs_values: bool = False) -> None:
        """A tensor that was recorded: its bytes, and those that it has in a leg in fp32."""
        if role in _STATES:
            self._state_bytes += size
            return
        self._leg_bytes += size
        self._fp32_leg_bytes += fp32_size
        if needs_values:
            self._kept_bytes += size
            self._fp32_kept_bytes += fp32_size

    def say(
        self, folder: str, memory: Mapping[str, int], free_memory: int, measured: bool = False
    ) -> None:
        """`memory`: the legs that will run, and how many bytes each takes beyond what training
        holds. `measured`: of noise legs only what they differ by is written."""
        legs = [LegName.parse(leg) for leg in memory]
        kept = self._kept_bytes / max(1, self._leg_bytes)
        fp32_kept = self._fp32_kept_bytes / max(1, self._fp32_leg_bytes)
        # In legs whose values are all written.
        stored = sum(1 if not (measured and leg.noise) else kept for leg in legs if not leg.fp32)
        fp32_stored = sum(
            1 if not (measured and leg.noise) else fp32_kept for leg in legs if leg.fp32
        )
        process_messages.leave(
            folder,
            "cost",
            legs=len(legs),
            fp32_legs=sum(leg.fp32 for leg in legs),
            stored_legs=stored + fp32_stored,
            stored_fp32_legs=fp32_stored,
            leg_bytes=self._leg_bytes,
            fp32_leg_bytes=self._fp32_leg_bytes,
            state_bytes=self._state_bytes,
            memory=max(memory.values(), default=0),
            free_memory=free_memory,
        )
