"""Sees the calls of torch that a loop makes outside of its model.

`torch.overrides.TorchFunctionMode` is told of every call of torch's Python API; functions of the
user's own with a backward (`torch.autograd.Function`), which is what compiled code is too, and
collectives are not among them and are wrapped. While the model or compiled code runs nothing is
seen: torch.compile would compile for a mode that is active, and once more without it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode, handle_torch_function

from ttrace.capture import collective_calls
from ttrace.capture.patches import Patches

# around(name, function, args, kwargs, is_collective) makes the call and returns its result.
Around = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any], bool], Any]

_COMPILER = "torch._dynamo.eval_frame"


class _Mode(TorchFunctionMode):
    def __init__(self, seen: Callable[..., Any]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = _that_runs(func, sys._getframe(1))
        return self._seen(getattr(func, "__name__", str(func)), func, args, kwargs or {})


class CallsOfTorch:
    """Of the thread that trains. `around` is called for each, but not for those that one of them
    makes itself."""

    def __init__(self, patches: Patches, around: Around, on_collective: Callable[[], None]) -> None:
        """`on_collective()` is told of every one that the process makes meanwhile."""
        self._on_collective = on_collective
        self._around = around
        self._mode = _Mode(self._call)
        self._watching = False
        self._placed = False  # the mode is active
        self._thread = 0
        self._apart = 0  # depth of `apart`
        self._handling = 0  # depth of calls that are seen: torch keeps the mode out of their way
        self._sees_compiler = False
        self._compiled: list[FrameType] = []  # calls of compiled code that run
        self._patches = patches
        self._hand_back: Callable[[], None] = lambda: None
        owner: Any = torch.autograd.Function
        apply = vars(owner)["apply"].__func__

        def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
            function = functools.partial(apply, cls)
            if not self._sees:
                return function(*args, **kwargs)
            return self._call(cls.__name__, function, args, kwargs)

        patches.replace(owner, "apply", classmethod(applied))

    @property
    def _sees(self) -> bool:
        is_idle = self._apart == self._handling == 0 and not _is_being_compiled()
        return self._watching and is_idle and threading.get_ident() == self._thread

    def begin(self) -> None:
        if self._watching:
            return
        compiler = sys.modules.get(_COMPILER)
        if compiler is not None and not self._sees_compiler:
            self._patches.wrap_static(compiler, "_maybe_set_eval_frame", self._compiled_code)
            self._sees_compiler = True
        self._watching, self._thread = True, threading.get_ident()
        self._hand_back = collective_calls.carry_out(self._collective)
        self._place()

    def end(self) -> None:
        if self._watching:
            self._watching = False
            self._hand_back()
            self._place()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Inside, nothing is seen."""
        self.leave()
        try:
            yield
        finally:
            self.come_back()

    def leave(self) -> None:
        self._apart += 1
        self._place()

    def come_back(self) -> None:
        self._apart -= 1
        self._place()

    def _place(self) -> None:
        """The mode is active if it should be."""
        if self._handling:
            return  # torch puts it back where it was
        wanted = self._watching and self._apart == 0 and not self._compiled
        if wanted != self._placed:
            self._placed = wanted
            (_put_under if wanted else _take_out)(self._mode)

    def _call(
        self, name: str, function: Any, args: Any, kwargs: Any, is_collective: bool = False
    ) -> Any:
        """The mode is out of the way while its handler runs."""
        functorch = torch._C._are_functorch_transforms_active()
        if not self._sees or functorch:
            return function(*args, **kwargs)
        self._handling += 1
        try:
            return self._around(name, function, args, kwargs, is_collective)
        finally:
            self._handling -= 1

    def _collective(self, function: Any, args: Any, kwargs: Any) -> Any:
        self._on_collective()
        return self._call(function.__name__, function, args, kwargs, is_collective=True)

    def _compiled_code(self, original: Any, callback: Any) -> Any:
        """torch calls this before compiled code runs and once more after it, from one frame."""
        frame = sys._getframe(2)
        if self._compiled and self._compiled[-1] is frame:
            self._compiled.pop()
            self._place()
        elif self._watching:
            self._compiled.append(frame)
            self._place()
        return original(callback)


def _is_being_compiled() -> bool:
    """Whether what runs is looked at by the compiler, with tensors that hold nothing."""
    return torch.compiler.is_compiling() or torch._guards.TracingContext.try_get() is not None


def _that_runs(function: Any, frame: FrameType) -> Any:
    """A function of torch that is written in Python hands on what its module has under its name. If
    somebody has put another one there, that one has called it, and must not run twice."""
    code = getattr(function, "__code__", None)
    caller = frame.f_back
    if code is None or caller is None or frame.f_code is not handle_torch_function.__code__:
        return function
    if caller.f_code is code or caller.f_code.co_freevars:
        return function
    return FunctionType(caller.f_code, caller.f_globals)


def _put_under(mode: TorchFunctionMode) -> None:
    """Below the modes of others, which are entered and left in an order of their own."""
    others = []
    while torch._C._len_torch_function_stack() > 0:
        others.append(_pop_mode())
    _push_mode(mode)
    for other in reversed(others):
        _push_mode(other)


def _take_out(mode: TorchFunctionMode) -> None:
    others = []
    while torch._C._len_torch_function_stack() > 0:
        other = _pop_mode()
        if other is not mode:
            others.append(other)
    for other in reversed(others):
        _push_mode(other)
