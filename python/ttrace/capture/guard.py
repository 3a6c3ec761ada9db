"""Keeps what goes wrong in capture from the program that is captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Guard:
    """Of one capture. An error of a hook ends it, or the rerun that goes on."""

    def __init__(
        self,
        is_over: Callable[[], bool],
        stop: Callable[[Exception], None],
        graph_is_captured: Callable[[], None],
    ) -> None:
        """`graph_is_captured()` is called where a hook runs that a CUDA graph will leave out."""
        self._is_over = is_over
        self._stop = stop
        self._graph_is_captured = graph_is_captured
        self._failures: list[str] | None = None  # of the rerun that goes on

    @contextmanager
    def rerun(self) -> Iterator[list[str]]:
        """Gives what fails in hooks inside: that is the rerun's end and not the capture's."""
        failures = self._failures = []
        try:
            yield failures
        finally:
            self._failures = None

    def guarded(self, function: _Function) -> _Function:
        """Wraps a hook so that nothing it raises reaches the user's program."""

        # Without functools.wraps: it takes longer than a small record, for each gradient's hook.
        def guard(*args: Any, **kwargs: Any) -> Any:
            if self._is_over():
                return None
            try:
                if _captures_graph():
                    self._graph_is_captured()
                    return None
                if not torch.is_grad_enabled():  # as in a backward
                    return function(*args, **kwargs)
                with torch.no_grad():
                    return function(*args, **kwargs)
            except Exception as error:
                self._failed(error)
                return None

        return guard  # type: ignore[return-value]

    @contextmanager
    def around(self, make: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        """A context of this tool around a call of the user's: nothing that it raises gets out, and
        the call runs with it or without. Gives the context's value, or None."""
        entered = value = None
        if not self._is_over():
            try:
                context = make()
                value = context.__enter__()
                entered = context
            except Exception as error:
                self._failed(error)
        try:
            yield value
        finally:
            if entered is not None:
                try:
                    entered.__exit__(None, None, None)
                except Exception as error:
                    self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._failures is None or isinstance(error, OSError):
            self._stop(error)
        else:
            self._failures.append(f"{type(error).__name__}: {error}")


def _captures_graph() -> bool:
    """Whether what runs now becomes part of a CUDA graph. Reading a value would end that, and no
    hook runs when the graph does."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
