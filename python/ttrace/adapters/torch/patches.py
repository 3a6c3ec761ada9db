"""Functions of torch that are wrapped while a run is captured, and put back afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Patches:
    """Wrappers added here do nothing any more once they are undone, even where somebody else has
    wrapped them in the meantime and they have to stay."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._active = True

    def wrap_call(self, owner: Any, name: str, before: Callable[..., None]) -> bool:
        """Calls `before` with the arguments of every call. False if there is no such function."""
        original = getattr(owner, name, None)
        if original is None:
            return False

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._active:
                before(*args, **kwargs)
            return original(*args, **kwargs)

        self._replace(owner, name, original, wrapper)
        return True

    def wrap_result(self, owner: Any, name: str, change: Callable[[Any, Any], Any]) -> bool:
        """`change(first argument, result)` is what callers get."""
        original = getattr(owner, name, None)
        if original is None:
            return False

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            return change(args[0] if args else None, result) if self._active else result

        self._replace(owner, name, original, wrapper)
        return True

    def wrap_static(self, owner: Any, name: str, around: Callable[..., Any]) -> bool:
        """`around(original, *arguments)` is called in place of a static method or a function."""
        original = getattr(owner, name, None)
        if original is None:
            return False

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return original(*args, **kwargs)
            return around(original, *args, **kwargs)

        made: Any = staticmethod(wrapper) if isinstance(owner, type) else wrapper
        self._replace(owner, name, original, made)
        return True

    def replace(self, owner: Any, name: str, made: Any) -> None:
        """As an attribute of the class itself, be it a classmethod."""
        self._replace(owner, name, vars(owner)[name], made)

    def undo(self) -> None:
        self._active = False
        while self._undo:
            owner, name, original, wrapper = self._undo.pop()
            if vars(owner).get(name) is wrapper:
                static = isinstance(wrapper, staticmethod)
                setattr(owner, name, staticmethod(original) if static else original)

    def _replace(self, owner: Any, name: str, original: Any, wrapper: Any) -> None:
        setattr(owner, name, wrapper)
        self._undo.append((owner, name, original, wrapper))
