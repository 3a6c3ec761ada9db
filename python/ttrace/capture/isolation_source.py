"""The trace that isolated legs are given their values from.

A grafted run takes them from its reference. Any other run takes its own: it is a reference, or will
be one.
"""

from __future__ import annotations

from ttrace import _native
from ttrace.capture.recorded_values import RecordedValues
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName


class IsolationSources:
    """For the legs of one iteration. A run's own trace grows from leg to leg, so that it is opened
    once for each leg that values are taken from."""

    def __init__(self, session: Session) -> None:
        self._settings = session.settings
        self._known: dict[str, RecordedValues] = {}

    def refusal(self, leg: str) -> str | None:
        """Why `leg` cannot be given its values, or None. To be asked when the legs before it are in
        the files of all ranks. Looks at this rank only."""
        name = LegName.parse(leg)
        if not name.isolated:
            return None
        if self._settings.graft is not None and len(self._settings.graft_what) < 2:
            return "modules are isolated by the reference's values, so its weights and data too"
        try:
            source = self.of(leg)
        except _native.Error as error:
            return f"the trace to take values from cannot be read: {error}"
        if name.source not in source.legs:
            return f"{source.folder} has no leg {name.source}"
        return None

    def of(self, leg: str) -> RecordedValues:
        """Raises ttrace.Error if it cannot be read."""
        name = LegName.parse(leg).source
        key = name if self._settings.graft is None else "graft"
        if key not in self._known:
            self._known[key] = RecordedValues(self._settings.graft or self._settings.out)
        return self._known[key]
