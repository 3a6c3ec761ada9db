"""Comparisons in the ranks of a job that runs: a launch is a call of a function in them.

`ttrace diff` decides what is launched. It is run by the first rank, and the commands that it
launches are clients of that rank (client.py), which hands what they ask for on to the others and
has its own part in it. Ranks tell each other through the store at which they met; nothing is sent
through the job's groups but the name of the comparison.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import socket
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ttrace.capture import boot, scope
from ttrace.capture.agreement import Agreement, store_of_all_ranks
from ttrace.capture.settings import Settings
from ttrace.capture.state import Snapshot, random_states
from ttrace.ranks.own_group import own_group
from ttrace.ranks.requests import Request

_CLIENT = Path(__file__).with_name("client.py")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05  # seconds between two looks at the store


@dataclass(frozen=True)
class _Order:
    """One leg."""

    number: int
    function: int  # its place among those that are compared
    ranks: int
    environment: dict[str, str]


class Job:
    """This rank's part in comparisons that all ranks of a group make together."""

    def __init__(
        self,
        group: Any,
        functions: Sequence[Callable[..., Any]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        """`functions`: the same on all ranks. Collective. Raises ValueError if this rank is not of
        the group."""
        if not dist.is_initialized() or dist.get_rank(group) < 0:
            raise ValueError("group: this rank is not in it, or there is no process group")
        self._group = group
        self._functions = functions
        self._arguments = args, kwargs
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        name = [uuid.uuid4().hex]
        dist.broadcast_object_list(name, src=dist.get_global_rank(group, 0), group=group)
        key = f"ttrace/compare/{name[0]}"
        self._store = dist.PrefixStore(key, store_of_all_ranks())
        self._told = 0  # things, by the first rank
        self._board = Agreement(self._store, "board", self.rank, self.size)
        self._socket = Path(tempfile.gettempdir()) / f"ttrace-{name[0]}"

    def command(self, function: Callable[..., Any], ranks: int) -> list[str]:
        """The words that start a leg of it, on the first rank."""
        place = next(k for k, one in enumerate(self._functions) if one is function)
        words = [sys.executable, "-S", str(_CLIENT), str(self._socket), str(ranks), str(place)]
        return words

    def run(self, decide: Callable[[], Any]) -> Any:
        """What `decide()` gives or raises, on all ranks. It runs on the first, in a thread, while
        the ranks do what its commands ask for."""
        states = Snapshot([], random_states())
        try:
            outcome = self._lead(decide, states) if self.rank == 0 else self._follow(states)
        finally:
            states.restore()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    # The first rank

    def _lead(self, decide: Callable[[], Any], states: Snapshot) -> Any:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._socket))
        listener.listen(8)
        woken, wake = os.pipe()
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(decide())
            except BaseException as error:
                found.append(error)
            os.close(wake)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            while True:
                ready, _, _ = select.select([listener, woken], [], [])
                if listener not in ready:
                    break
                self._serve(listener, states)
        finally:
            listener.close()
            self._socket.unlink()
            thread.join()
            os.close(woken)
            outcome = found[0] if found else RuntimeError("the first rank ended the comparison")
            self._tell(outcome)
        return outcome

    def _tell(self, content: Any) -> None:
        """An order, or what came of it all."""
        try:
            said = pickle.dumps(content)
        except Exception:  # an exception that is no value
            said = pickle.dumps(RuntimeError(f"{type(content).__name__}: {content}"))
        self._board.post(f"order {self._told}", said)
        self._told += 1

    def _serve(self, listener: socket.socket, states: Snapshot) -> None:
        connection, _ = listener.accept()
        request = Request(connection, *Request.received(connection))
        try:
            environment = {k: v for k, v in request.environment.items() if k.startswith("TTRACE_")}
            call, ranks = int(request.asked["call"]), int(request.asked["ranks"])
            order = _Order(self._told, call, ranks, environment)
            self._tell(order)
            trouble = [self._call(order, states)]
            for rank in range(1, ranks):
                trouble.append(self._wait_for(f"{order.number} of {rank}").decode())
            for rank, text in enumerate(trouble):
                if text:
                    os.write(request.streams[2], f"rank {rank}:\n{text}".encode())
            request.answer(int(any(trouble)))
        finally:
            request.close()  # whoever waits for an answer sees that there is none

    # The others

    def _follow(self, states: Snapshot) -> Any:
        number = 0
        while True:
            order = pickle.loads(self._wait_for(f"order {number}"))
            if not isinstance(order, _Order):
                if self._store.add("read", 1) == self.size - 1:
                    self._board.withdraw(f"order {number}")  # as large as a result may be
                return order
            if self.rank < order.ranks:
                text = self._call(order, states)
                self._board.post(f"{number} of {self.rank}", text.encode())
            number += 1

    def _wait_for(self, name: str) -> bytes:
        pause = _FIRST_PAUSE
        while (content := self._board.posted(name)) is None:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return content

    # A leg

    def _call(self, order: _Order, states: Snapshot) -> str:
        """What the function raised, as text; "" if nothing."""
        states.restore()  # each leg begins with the same
        settings = Settings.from_environment(order.environment)
        assert settings is not None
        store = dist.PrefixStore(f"leg {order.number}", self._store)
        backend = _backend(self._group)
        timeout = dist.distributed_c10d._get_default_timeout(dist.get_backend(self._group))
        try:
            # A rank that fails leaves its group, which ends the waiting of the others.
            with own_group(order.ranks, self.rank, backend, store, timeout):
                self._run(order, settings)
        except Exception:
            return traceback.format_exc()
        finally:
            gc.collect()  # models and groups of this leg
        return ""

    def _run(self, order: _Order, settings: Settings) -> None:
        args, kwargs = self._arguments
        with scope.inside(scope.Scope(settings)) as inside, torch.enable_grad():
            boot.observe_frameworks(inside)
            with contextlib.suppress(SystemExit):
                self._functions[order.function](*args, **kwargs)


def _backend(group: Any) -> str:
    """As `init_process_group` takes it: "gloo", or one for each kind of device."""
    config = dist.get_backend_config(group)
    kinds = {word.partition(":")[2] for word in config.split(",")}
    return kinds.pop() if len(kinds) == 1 else config
