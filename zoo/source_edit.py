"""Places of one function of a library, replaced: for faults and corrections in long functions."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def edited(function: Callable[..., Any], *replacements: str) -> Any:
    """`function` as it would be with new text in place of old. `replacements` are pairs of them,
    and each old one must occur once.

    It lives in the module of the original, so that names mean what they meant. It must not call
    `super()` without arguments: that needs the class around it. What others have put around the
    function (a capture does) stays around it: then the function itself is changed. Of a static
    method it is one.
    """
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in zip(replacements[::2], replacements[1::2], strict=True):
        if source.count(old) != 1:
            raise LookupError(
                f"{old!r} occurs {source.count(old)} times in {function.__qualname__}"
            )
        source = source.replace(old, new)
    made: dict[str, Any] = {}
    code = compile(source, f"<{function.__qualname__}, edited>", "exec")
    inner = inspect.unwrap(function)
    exec(code, inner.__globals__, made)
    if inner is function or source.startswith("@"):
        return made[function.__name__]
    inner.__code__ = made[function.__name__].__code__
    return function
