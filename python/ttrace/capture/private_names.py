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
    # An attribute of instances, which exists only then: `name` is a method whose code uses it.
    attribute: str = ""

    def __str__(self) -> str:
        return ".".join(word for word in (self.module, self.name, self.attribute) if word)

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
        if not self.attribute:
            return True
        code = getattr(value, "__code__", None)
        # Of a dataclass it is an argument.
        return code is not None and self.attribute in (*code.co_names, *code.co_varnames)


def looked_up(names: Iterable[PrivateName]) -> dict[str, bool]:
    """For meta.json: which of them there are."""
    found = ((str(name), name.is_there) for name in names)
    return {name: there for name, there in found if there is not None}


def missing(names: Iterable[PrivateName]) -> Iterator[str]:
    """A sentence for each that should be there and is not."""
    for name in names:
        if name.is_there is False:
            yield f"this version has no {name}: {name.without}"
