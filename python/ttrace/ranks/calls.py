"""How a function of the caller's gets to processes that are no copies of the caller.

By its name in its module, as `multiprocessing` does it, so that the ranks import what the caller
did; what has no such name (a lambda, a function within a test) by value, where cloudpickle is
installed. The module of a test is often no package's: it is then loaded from its file.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# What stands for the caller's `__main__`: it must not do what it does as that.
_MAIN = "__ttrace_main__"


class NotPortable(TypeError):
    """A function that ranks cannot get."""


@dataclass(frozen=True)
class ModuleFile:
    """A module of the caller's, by its name there; `file`: where it was loaded from, or None."""

    name: str
    file: str | None

    @staticmethod
    def of(function: Callable[..., Any]) -> ModuleFile:
        while isinstance(function, functools.partial):
            function = function.func
        name = getattr(function, "__module__", None) or "builtins"
        file = getattr(sys.modules.get(name), "__file__", None)
        return ModuleFile(name, os.path.abspath(file) if file else None)

    def load(self) -> Any:
        """The module, imported now if it was not."""
        name = _MAIN if self.name == "__main__" else self.name
        if name in sys.modules:
            return sys.modules[name]
        if self.name != "__main__":
            try:
                found = importlib.import_module(name)
                if self.file is None or _same(getattr(found, "__file__", None), self.file):
                    return found
            except ImportError:
                if self.file is None:
                    raise
        if self.file is None:
            raise NotPortable(f"{self.name} has no file that ranks could load it from")
        spec = importlib.util.spec_from_file_location(name, self.file)
        if spec is None or spec.loader is None:
            raise NotPortable(f"{self.file} cannot be loaded as a module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        if name == _MAIN:
            sys.modules["__main__"] = module  # classes that are pickled say so
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module


def _same(one: str | None, other: str) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


@dataclass(frozen=True)
class Call:
    """What each rank of a launch calls."""

    module: ModuleFile
    name: str  # within the module, dotted; "": `value` has the function
    value: bytes  # pickled: the arguments, and the function where it has no name
    backend: str | None  # of the process group that it finds; None: it makes its own
    search: Sequence[str] = field(default_factory=tuple)  # the caller's sys.path

    @staticmethod
    def of(
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        backend: str | None,
    ) -> Call:
        """Raises NotPortable, in words for who wrote the function."""
        module, name = ModuleFile.of(function), _name_in_module(function)
        content: Any = (
            (tuple(args), dict(kwargs)) if name else (function, tuple(args), dict(kwargs))
        )
        try:
            value = pickle.dumps(content) if name else _by_value(content)
        except NotPortable:
            raise
        except Exception as error:
            what = "the arguments" if name else _shown(function)
            raise NotPortable(
                f"{what} cannot be sent to ranks ({type(error).__name__}: {error}): make models, "
                "data and process groups inside the function"
            ) from error
        return Call(module, name, value, backend, tuple(p or os.getcwd() for p in sys.path))

    def run(self) -> None:
        """In a rank."""
        if self.name:
            target: Any = self.module.load()
            for part in self.name.split("."):
                target = getattr(target, part)
            args, kwargs = pickle.loads(self.value)
        else:
            if self.module.file is not None:
                self.module.load()  # what was pickled is found there
            target, args, kwargs = pickle.loads(self.value)
        target(*args, **kwargs)


def _shown(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _name_in_module(function: Callable[..., Any]) -> str:
    """By which a rank would find it; empty if there is none."""
    name = getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    if not name or "<" in name or ModuleFile.of(function).file is None:
        return ""
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is function else ""


def _by_value(content: Any) -> bytes:
    """A method of an object, a partial: as pickle has them; else as cloudpickle does."""
    with contextlib.suppress(Exception):
        return pickle.dumps(content)
    try:
        import cloudpickle
    except ImportError:
        raise NotPortable(
            f"{_shown(content[0])} is no function at the top of a module, which is what ranks can "
            "import: move it there, or `pip install cloudpickle`"
        ) from None
    return cloudpickle.dumps(content)
