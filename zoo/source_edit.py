"""One place of one function of a library, replaced: for faults inside long functions."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def edited(function: Callable[..., Any], old: str, new: str) -> Any:
    """`function` as it would be with `new` in place of `old`, which must occur in it once.

    It lives in the module of the original, so that names mean what they meant. It must not call
    `super()` without arguments: that needs the class around it. What others have put around the
    function (a capture does) stays around it: then the function itself is changed.
    """
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise LookupError(f"{old!r} occurs {source.count(old)} times in {function.__qualname__}")
    made: dict[str, Any] = {}
    code = compile(source.replace(old, new), f"<{function.__qualname__}, edited>", "exec")
    inner = inspect.unwrap(function)
    exec(code, inner.__globals__, made)
    if inner is function or source.startswith("@"):
        return made[function.__name__]
    inner.__code__ = made[function.__name__].__code__
    return function
