"""Attaching capture to a plain torch model: see ttrace.attach."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from torch import nn

from ttrace.adapters.torch.given import Given, Misuse, trace_folder
from ttrace.adapters.torch.loop import LoopCapture
from ttrace.capture import process_messages
from ttrace.capture.scope import Scope, current
from ttrace.capture.settings import Settings

_captures: list[LoopCapture] = []  # of this process, those that go on


class Attached:
    """What `attach` returns: the hold on what it began. As a context manager it is closed at the
    end of the block. Nothing here raises."""

    def __init__(self, capture: LoopCapture | None) -> None:
        self._capture = capture

    @property
    def captures(self) -> bool:
        """Whether iterations are captured, or will be. False where nothing was asked for, or it was
        refused, and once the last one is over."""
        return self._capture is not None and not self._capture.over

    @property
    def folder(self) -> str | None:
        """Of the trace, absolute. None: nothing was captured."""
        return None if self._capture is None else self._capture.folder

    def close(self) -> None:
        """Ends it now; the trace says that it is incomplete if iterations are missing. Hooks and
        patches are gone afterwards, as they are where capture has ended by itself."""
        if self._capture is not None:
            self._capture.close("it was closed before its last iteration was complete")

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def attach(model: Any, optimizer: Any, *, out: Any, **more: Any) -> Attached:
    """See ttrace.attach."""
    try:
        scope = _scope(out)
        return Attached(None if scope is None else _attach(scope, model, optimizer, **more))
    except Exception as error:
        _say(f"not captured: {_sentence(error)}")
        return Attached(None)


def attach_loop(
    scope: Scope, model: Any, optimizers: Sequence[Any], within: nn.Module | None = None
) -> None:
    """Of a library that owns the loop: the loop may call attach, too. `within`: what is around all
    that is attached, and is not called for it."""
    try:
        _attach(scope, model, list(optimizers), by_library=True, within=within)
    except Exception as error:
        _say(f"not captured: {_sentence(error)}")


def capture_of(model: nn.Module) -> LoopCapture | None:
    """What captures this model, while it does."""
    return next((capture for capture in _captures if capture.is_of(model)), None)


def _scope(out: Any) -> Scope | None:
    """What the code that calls is captured by, if by anything."""
    scope = current()
    if scope is not None:
        return scope
    # The launcher's, in an interpreter that did not load its hook.
    settings = Settings.from_environment()
    if settings is None and out is not None:
        settings = Settings(out=trace_folder(out))
        if _going_on(settings) is None:
            create_folder(settings.out)
    return None if settings is None else _going_on(settings) or Scope(settings)


def _going_on(settings: Settings) -> Scope | None:
    """The scope of a capture that has these."""
    return next((c.scope for c in _captures if c.scope.settings == settings), None)


def _attach(
    scope: Scope,
    model: Any,
    optimizer: Any,
    by_library: bool = False,
    within: nn.Module | None = None,
    **more: Any,
) -> LoopCapture | None:
    try:
        given = Given.of(model, optimizer, **more)
        models = list(given.models.values())
        before = next(filter(None, map(capture_of, models)), None)
        if before is not None:
            if not (by_library or before.by_library):
                _say("attach was called again with the same model: the first call counts")
            return before
        if scope.is_closed:
            raise Misuse("its capture is over already")
        if (other := next((c for c in _captures if c.scope is scope), None)) is not None:
            other.refuse_another(", ".join(type(model).__name__ for model in models))
            raise Misuse(
                "a second model was attached; only the first is captured: give both in one call, "
                "ttrace.attach([one, other], optimizers)"
            )
    except Misuse as reason:
        process_messages.leave(scope.settings.out, "refused", text=f"attach: {reason}")
        raise
    for doubt in () if by_library else given.doubts():
        _say(doubt)
    scope.has_loop = True
    capture = LoopCapture(scope, given, by_library, within, over=_forget)
    _captures.append(capture)
    scope.when_closed(capture.close)
    return capture


def _forget(capture: LoopCapture) -> None:
    if capture in _captures:
        _captures.remove(capture)
        capture.scope.forget(capture.close)


def _say(text: str) -> None:
    sys.stderr.write(f"ttrace: {text}\n")


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, Misuse) else f"{type(error).__name__}: {error}"


def create_folder(folder: str) -> None:
    """What the launcher does before a recorded run; ranks may race for it. Raises Misuse if it
    holds a trace of this rank."""
    os.makedirs(folder, exist_ok=True)
    try:
        with open(os.path.join(folder, "manifest.json"), "x", encoding="utf-8") as file:
            manifest = {"format": "ttrace", "version": 1, "command": sys.argv}
            file.write(json.dumps(manifest) + "\n")
    except FileExistsError:
        rank = int(os.environ.get("RANK", "0"))
        if os.path.exists(os.path.join(folder, f"rank-{rank:05}.r0")):
            raise Misuse(f"{folder!r} has a trace already") from None
