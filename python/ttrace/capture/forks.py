"""What a child of fork must let go of: it has the parent's files open, and must not touch them.

A handler of a fork cannot be taken back. There is one in a process, however many captures follow
each other in it.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class _Abandons(Protocol):
    def abandon(self) -> None: ...


_held: weakref.WeakSet[_Abandons] = weakref.WeakSet()


def abandon_in_child(holder: _Abandons) -> None:
    """Calls `holder.abandon()` in every child, for as long as the holder lives."""
    _held.add(holder)


def _in_child() -> None:
    for holder in list(_held):
        holder.abandon()


os.register_at_fork(after_in_child=_in_child)
