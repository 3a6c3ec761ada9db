#!/usr/bin/env python3
"""Runs a training script as `ttrace record` does, but for what it records: hooks run, and nothing
is copied, digested or written. What remains is what empty hooks cost.

    ttrace record -o DIR -- python bench/without_writing.py SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import sys
from typing import Any

from wrapped_script import run_script

from ttrace.capture.session import Session


class Deaf:
    """A writer that is given tensors and does nothing with them."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def append(self, *_arguments: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def start(session: Session, *arguments: Any, **named: Any) -> None:
    _start(session, *arguments, **named)
    session._writer = Deaf(session._writer)


_start = Session.start
Session.start = start  # type: ignore[method-assign]

if __name__ == "__main__":
    run_script(sys.argv[1:])
