"""Notes of a run that are written once."""

from __future__ import annotations

from collections.abc import Callable


class Notices:
    """What has been noted so far, of one rank."""

    def __init__(self, note: Callable[..., None]) -> None:
        """`note(kind, **values)` writes one."""
        self._note = note
        self._asked: set[tuple[str, ...]] = set()
        self._unsupported: set[str] = set()

    def once(self, *what: str) -> bool:
        """True the first time that it is asked of this."""
        first = what not in self._asked
        self._asked.add(what)
        return first

    def unsupported(self, what: str, reason: str, way_out: str) -> None:
        if what not in self._unsupported:
            self._unsupported.add(what)
            self._note("unsupported", what=what, reason=reason, way_out=way_out)

    def notice(self, text: str) -> None:
        self._note("notice", text=text)

    def has_seen(self, what: str) -> bool:
        """Whether that was noted as unsupported."""
        return what in self._unsupported

    def not_recorded(self, fqn: str, role: str, arg: str, reason: str) -> None:
        """Once for each tensor."""
        if self.once("not_recorded", fqn, role, arg):
            self._note("not_recorded", fqn=fqn, role=role, arg=arg, reason=reason)

    def refused(self, fqn: str, reason: str) -> None:
        """A tensor that no record can hold: once for each module or parameter."""
        if self.once("refused", fqn):
            self._note("not_observed", **{"fqn": fqn, "class": "", "reason": reason})
