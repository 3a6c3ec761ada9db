"""Where in the source it is written: the class of each module and its forward, the loop's call of
backward and of the optimizer's step.

A finding names a module; who mends it opens a file. Paths are those that the process sees, below
its working directory relative to that. What has no source (a class that was typed in, or made by
another one) has the place of what it was made of, if any. What cannot be found costs a line of a
report, never the capture.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any, ParamSpec

from torch import nn

# Frames of these are between the user's loop and what it called.
_BETWEEN = ("torch", "ttrace", "contextlib", "functools")
# And of these, where there is a loop of the user's: one of their own is better than none.
_LOOPS = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning", "transformers")
_STARTERS = ("multiprocessing", "runpy", "threading")
# What torch gives a module that has no forward, as a list of modules.
_UNDEFINED = "_forward_unimplemented"

_Place = tuple[str, int]  # file and line
_P = ParamSpec("_P")


def _never_raising(note: Callable[_P, None]) -> Callable[_P, None]:
    @functools.wraps(note)
    def noting(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            note(*args, **kwargs)
        except Exception:
            return

    return noting


@_never_raising
def note_modules(session: Any, modules: Iterable[tuple[str, Any]]) -> None:
    """One note for each class of `modules`, which are (name, module), and one for each forward that
    was put in the place of its class's. Of modules of one name, a wrapper and what it wraps, the
    last is meant. A class without a place is noted too, or its modules' places would seem to be
    those of the modules around them."""
    names: dict[tuple[type, _Place | None], list[str]] = {}
    of_class: dict[type, _Place | None] = {}
    for fqn, module in dict(modules).items():
        cls = type(module)
        if "parametrizations" in fqn.split(".") and cls.__module__.startswith("torch."):
            continue  # how weight_norm makes a parameter: to look at is what has the parameter
        if cls not in of_class:
            of_class[cls] = _or_none(place_of_forward, cls)
        own = vars(module).get("forward")
        forward = of_class[cls] if own is None else _or_none(_place_of_function, own)
        names.setdefault((cls, forward), []).append(fqn)
    for (cls, forward), fqns in names.items():
        _note_class(session, cls, forward, fqns)


@_never_raising
def _note_class(session: Any, cls: type, forward: _Place | None, fqns: list[str]) -> None:
    fields: dict[str, Any] = {"class": _utf8(cls.__qualname__), "modules": fqns}
    for base in cls.__mro__:
        # One that was made by another, or typed in, may be made of one that is written in a file.
        is_of_module = issubclass(base, nn.Module) and base is not nn.Module
        place = _or_none(place_of_class, base) if is_of_module else None
        if place is not None:
            fields |= {"file": _shown(place[0]), "line": place[1]}
            if base.__module__.partition(".")[0] == "torch":
                fields["of_torch"] = True  # to look at is what uses it
            if base is not cls:
                fields["base"] = _utf8(base.__qualname__)
            break
    if forward is not None:
        fields |= {"forward_file": _shown(forward[0]), "forward_line": forward[1]}
    session.note("source_of_class", **fields)


@_never_raising
def note_caller(session: Any, what: str) -> None:
    """Once for each thing that is called: from where the loop calls `what` now."""
    if not session.once(f"source of {what}"):
        return
    frame, nearest = sys._getframe(1), None
    while frame is not None:
        package = _package_of(frame)
        if package not in _BETWEEN:
            nearest = nearest or frame
            if package not in _LOOPS and package not in _STARTERS:
                break
        frame = frame.f_back
    frame = frame or nearest
    if frame is not None:
        file = _shown(frame.f_code.co_filename)
        session.note("source_of_call", what=what, file=file, line=frame.f_lineno)


@_never_raising
def note_function(session: Any, what: str, function: Any) -> None:
    """Once: where the function is written that the loop hands over as `what`."""
    if not session.once(f"source of {what}"):
        return
    code = _code_of(function)
    if code is not None:
        file, line = _shown(code.co_filename), code.co_firstlineno
        session.note("source_of_call", what=what, file=file, line=line)


def place_of_class(cls: type) -> _Place | None:
    """File and line of the class statement, without parsing the file."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if not file:
        return None
    line = cls.__dict__.get("__firstlineno__")  # Python 3.13
    if isinstance(line, int):
        return file, line
    written = linecache.getlines(file, vars(module))  # it may be in an archive
    statement = re.compile(rf"\s*class\s+{re.escape(cls.__name__)}\b")
    lines = [n for n, text in enumerate(written, 1) if statement.match(text)]
    # A name may be given twice: the class is the last before its own first function.
    first = min((code.co_firstlineno for code in _codes(cls, file)), default=None)
    if first is not None:
        lines = [n for n in lines if n <= first]
        return (file, lines[-1]) if lines else None
    return (file, lines[0]) if len(lines) == 1 else None


def place_of_forward(cls: type) -> _Place | None:
    """File and line of what runs when such a module is called; it may be a base class's."""
    return _place_of_function(getattr(cls, "forward", None))


def _place_of_function(function: Any) -> _Place | None:
    code = _code_of(function)
    if code is None or code.co_name == _UNDEFINED or code.co_filename.startswith("<"):
        return None  # what was typed in is in "<string>"
    return code.co_filename, code.co_firstlineno


def _code_of(function: Any) -> CodeType | None:
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _or_none(place_of: Callable[[Any], _Place | None], what: Any) -> _Place | None:
    try:
        return place_of(what)
    except Exception:  # of an odd class
        return None


def _shown(path: str) -> str:
    try:
        path = path.removeprefix(os.getcwd() + os.sep)
    except OSError:  # the working directory is gone
        pass
    return _utf8(path)


def _utf8(text: str) -> str:
    """A path may be any bytes; those that are no text are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _codes(cls: type, file: str) -> Iterable[CodeType]:
    prefix = f"{cls.__qualname__}."
    for value in vars(cls).values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        code = getattr(inspect.unwrap(function), "__code__", None)
        is_own = getattr(function, "__qualname__", "").startswith(prefix)
        if is_own and isinstance(code, CodeType) and code.co_filename == file:
            yield code


def _package_of(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name.partition(".")[0] if isinstance(name, str) else ""
