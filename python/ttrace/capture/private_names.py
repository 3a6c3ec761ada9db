"""Names that a library does not promise: each is looked up when capture begins, and what was found
is kept in the trace.

A name that another version lacks costs what it is needed for, said by a note, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PrivateName:
    module: str  # looked at only if it was imported
    name: str  # "Class.attribute" within it
    without: str  # what is lost
    sets: str = ""  # an attribute that the function at `name` sets: nothing else shows it

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" + (f" ({self.sets})" if self.sets else "")

    @property
    def is_there(self) -> bool | None:
        """None: its module was not imported."""
        value: Any = sys.modules.get(self.module)
        if value is None:
            return None
        for part in self.name.split("."):
            # A name of None is there: what is set later, as a state machine.
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return not self.sets or self._is_set_by(value)

    def _is_set_by(self, function: Any) -> bool:
        code = getattr(function, "__code__", None)
        # Of a dataclass it is an argument.
        return code is not None and self.sets in (*code.co_names, *code.co_varnames)


def looked_up(names: Iterable[PrivateName]) -> dict[str, bool]:
    """For meta.json: which of them there are."""
    found = ((str(name), name.is_there) for name in names)
    return {name: there for name, there in found if there is not None}


def missing(names: Iterable[PrivateName]) -> Iterator[str]:
    """A sentence for each that should be there and is not."""
    for name in names:
        if name.is_there is False:
            yield f"this version has no {name}: {name.without}"
