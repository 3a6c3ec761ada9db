"""Functions of torch and of frameworks that are wrapped while a run is captured, and put back.

Several captures may wrap one function, one around the other, and end in any order: what is put back
is what lies under all wrappers that have ended.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_ENDED = "ttrace_ended"  # of a wrapper that was undone: itself, and what it had wrapped
_ABSENT = object()


class Patches:
    """Wrappers added here do nothing any more once they are undone, even where somebody else has
    wrapped them in the meantime and they have to stay."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._copies: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._active = True

    @property
    def active(self) -> bool:
        return self._active

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

        self.replace(owner, name, wrapper)
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

        self.replace(owner, name, wrapper)
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

        self.replace(owner, name, staticmethod(wrapper) if isinstance(owner, type) else wrapper)
        return True

    def replace(self, owner: Any, name: str, wrapper: Any) -> None:
        """Puts `wrapper` there, which asks `active` itself, or is content to go on."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, wrapper)
        self._undo.append((owner, name, before, wrapper))

    def replace_copies(self, replaced: dict[int, Any]) -> None:
        """Of functions, by id, that others have copied by name before they were wrapped. Gives
        these the wrappers, too."""
        for names in _names_of_modules():
            for name, value in list(names.items()):
                wrapper = replaced.get(id(value))
                if wrapper is not None and value is not wrapper:
                    names[name] = wrapper
                    self._copies.append((names, name, value, wrapper))

    def undo(self) -> None:
        self._active = False
        while self._copies:
            names, name, before, wrapper = self._copies.pop()
            if names.get(name) is wrapper:
                names[name] = before
        while self._undo:
            owner, name, before, wrapper = self._undo.pop()
            if before is not _ABSENT:
                function = _function(wrapper)
                # functools.wraps copies it to whoever wraps that again: of whom it is, is said.
                function.__dict__[_ENDED] = function, before
            if vars(owner).get(name) is not wrapper:
                continue  # somebody is around it, who puts it back: see _beneath
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, _beneath(before))

    def undo_everywhere(self) -> None:
        """Also where modules that were imported meanwhile have copied a wrapper by its name."""
        wrappers = {
            id(wrapper): before
            for owner, _, before, wrapper in self._undo
            if isinstance(owner, ModuleType) and before is not _ABSENT
        }
        self.undo()
        for names in _names_of_modules() if wrappers else ():
            for name, value in list(names.items()):
                before = wrappers.get(id(value))
                if before is not None:
                    names[name] = _beneath(before)


def _function(wrapper: Any) -> Any:
    return wrapper.__func__ if isinstance(wrapper, staticmethod | classmethod) else wrapper


def _beneath(found: Any) -> Any:
    """What lies under all wrappers that have ended."""
    while True:
        function = _function(found)
        ended, before = getattr(function, "__dict__", {}).get(_ENDED, (None, None))
        if ended is not function:
            return found
        found = before


def _names_of_modules() -> list[dict[str, Any]]:
    found = (getattr(module, "__dict__", None) for module in list(sys.modules.values()))
    return [names for names in found if isinstance(names, dict)]
