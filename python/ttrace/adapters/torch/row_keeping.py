"""Whether rows that the reference has stay where this run dealt them: one answer of all ranks.

A rank cannot know what others are given. One that keeps its rows, because the reference has them
somewhere, beside one whose rows the reference does not have, and who is given those of its place,
may hold the very rows that the other one gets: a global batch in which some rows are twice, and
others nowhere. So all keep theirs, or all are given those of their places. The first item shows
how rows are dealt.
"""

from __future__ import annotations

from ttrace.capture.agreement import Agreement
from ttrace.capture.session import Session

_SECONDS = 20  # for ranks that load no data, once a run
_QUESTION = "rows"


class RowKeeping:
    """Of one run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: bool | None = None

    def asked(self, has_rows: bool) -> bool:
        """Whether an item stays as it is. `has_rows`: the reference has all of its rows."""
        if self._kept is None:
            ranks = Agreement.of_ranks(self._session.settings, "data")
            against = None if has_rows else "has rows that the reference does not have"
            # A rank that says nothing has no rows that could be anyone else's.
            self._kept = ranks.vote(_QUESTION, against, _SECONDS) is None or ranks.silent
        return self._kept and has_rows
