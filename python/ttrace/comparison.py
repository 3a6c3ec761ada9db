"""Comparisons from Python: of two functions that train, and of two traces."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ttrace.ranks.calls import Call, ModuleFile
from ttrace.ranks.kept import KeptServers
from ttrace.ranks.server import file_state
from ttrace.result import Result

_T = TypeVar("_T")
_servers = KeptServers()

# Of what a command said that failed: the last is why.
_LINES = 12


def check(
    reference: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> Result:
    """Compares two trace folders, as `ttrace check` does. `output`: a folder for the report;
    `options`: further words for the command, such as "--bitwise". A trace that cannot be read makes
    the result inconclusive."""
    words = ["check", "--quiet", os.fspath(reference), os.fspath(candidate)]
    return _run(words, options, output)


def compare(
    reference: Callable[..., Any] | None,
    candidate: Callable[..., Any],
    *,
    ranks: tuple[int, int] = (1, 2),
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    golden: str | os.PathLike[str] | None = None,
    iterations: int | str = 2,
    backend: str | None = "auto",
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
    group: Any = None,
) -> Result:
    """Compares two functions that train, as `ttrace diff` compares two commands.

    Each builds its model and optimizer, calls `ttrace.attach(model, optimizer)` if its framework
    needs that, and takes at least `iterations` steps ("FIRST:END": those are compared); what it
    returns is ignored. They are called in processes of their own, once, or again for each rerun
    (noise, isolation, ...) that cannot be made in the process: the reference in `ranks[0]` and the
    candidate in `ranks[1]` of them, with `args` and `kwargs`, which are pickled. Those processes
    are kept, so that a second comparison does not import torch again. Functions at the top of a
    module are found there by their name, methods and partials are pickled; others need cloudpickle.

    `golden`: a baseline, in the place of the reference, which may then be None. `backend`: of the
    process group that each function finds, "gloo", "nccl"; "auto": the devices' if there is one for
    each rank; None: it makes its own, by the environment that torchrun gives. `output`: a folder
    for the report and traces, whose former result is replaced; None: nothing is kept. `options`:
    further words for `ttrace diff`, such as "--graft=none".

    `group`: a process group of a job that runs, such as `torch.distributed.group.WORLD`, of which
    all ranks make this call, alike. The functions are then called in these ranks, each call in a
    default group of its own of the first `ranks[0]` or `ranks[1]` of them, and need not be sent
    anywhere. All get the result; `output`, `golden` and the traces are the first rank's, in a
    folder that all can write. Random states and process groups are afterwards as they were.

    Never raises for what a function raises: the result is then inconclusive, and says so. Raises
    TypeError for a function or arguments that cannot be sent to other processes, ValueError for
    numbers of ranks that there are not. May be called from several threads, but with `group`.
    """
    functions = [f for f in (reference, candidate) if f is not None]
    of_rank = _ranks(functions, backend, args, kwargs or {}, ranks, group)
    words = ["diff", "--quiet", "--no-first-step", _iterations(iterations)]
    sides = [("candidate", candidate, ranks[1])]
    if golden is not None:
        words.append(f"--reference-trace={os.fspath(golden)}")
    elif reference is not None:
        sides.insert(0, ("reference", reference, ranks[0]))
    for name, function, count in sides:
        words.append(f"--{name}={shlex.join(of_rank.command(function, count))}")
    return of_rank.run(lambda: _run(words, options, output))


def accept(
    reference: Callable[..., Any],
    golden: str | os.PathLike[str],
    *,
    ranks: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    iterations: int | str = 2,
    backend: str | None = "auto",
    group: Any = None,
) -> None:
    """Records the function as a baseline, in the place of an older one. Raises ttrace.Error if it
    could not be; the older one stays then."""
    from ttrace._native import Error

    of_rank = _ranks([reference], backend, args, kwargs or {}, (ranks,), group)
    words = ["baseline", "--force", "-o", os.fspath(golden), _iterations(iterations), "--"]
    done = of_rank.run(lambda: _ttrace([*words, *of_rank.command(reference, ranks)]))
    if done.returncode != 0:
        raise Error(f"{os.fspath(golden)}: no baseline was recorded\n{_end_of(done.stderr)}")


@contextlib.contextmanager
def record(
    out: str | os.PathLike[str],
    *,
    iterations: int | str = 2,
    mode: str = "full",
    select: str = "",
) -> Iterator[Path]:
    """Captures the loop that runs inside of the block into the trace folder `out`, as `ttrace
    record` does that of a command: one that calls `ttrace.attach`, or one of a library. In each
    rank of a job; gives the folder.

    `iterations`: so many from the first, or "FIRST:END". `mode`: "full", "sketch" or "bitwise".
    `select`: as `ttrace record --select`. Afterwards nothing of capture remains in the process. A
    trace is incomplete if its last iteration is.

    Raises ValueError for words that mean nothing, and for a folder that holds a trace of this rank.
    Blocks may lie in each other, and in several threads beside each other: a loop belongs to the
    innermost of its own thread.
    """
    from ttrace.adapters.torch.attach import create_folder
    from ttrace.adapters.torch.given import Misuse, trace_folder
    from ttrace.capture import boot, scope
    from ttrace.capture.settings import Settings

    try:
        folder = trace_folder(out)
        settings = Settings.from_words(
            folder,
            iterations=_first_and_end(iterations),
            mode=mode,
            select=select,
        )
        create_folder(folder)
    except Misuse as reason:
        raise ValueError(str(reason)) from None
    with scope.inside(scope.Scope(settings)) as order:
        boot.observe_frameworks(order)
        yield Path(folder)


class _Ranks(Protocol):
    """Where functions are called."""

    def command(self, function: Callable[..., Any], ranks: int) -> list[str]:
        """The words that start a leg of it."""

    def run(self, decide: Callable[[], _T]) -> _T:
        """What `decide()` gives, which runs such commands."""


def _ranks(
    functions: Sequence[Callable[..., Any]],
    backend: str | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    counts: Sequence[int],
    group: Any,
) -> _Ranks:
    for count in counts:
        if count < 1:
            raise ValueError(f"ranks: {count} is less than 1")
    if group is None:
        return _Launches(functions, backend, args, kwargs)
    from ttrace.ranks.job import Job

    if backend != "auto":
        raise ValueError("backend: with `group` it is that of the group")
    job = Job(group, functions, args, kwargs)
    if max(counts) > job.size:
        raise ValueError(f"ranks: {max(counts)} are more than the {job.size} of the group")
    return job


class _Launches:
    """In ranks of a process that is kept."""

    def __init__(
        self,
        functions: Sequence[Callable[..., Any]],
        backend: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._modules = [ModuleFile.of(function) for function in functions]
        self._call = backend, args, kwargs

    def command(self, function: Callable[..., Any], ranks: int) -> list[str]:
        backend, args, kwargs = self._call
        call = Call.of(function, args, kwargs, backend)
        return _servers.server(self._modules).command(call, ranks)

    def run(self, decide: Callable[[], _T]) -> _T:
        return decide()


def _run(
    words: Sequence[str], options: Sequence[str], output: str | os.PathLike[str] | None
) -> Result:
    """Without an output folder nothing is kept but the result."""
    if output is not None:
        return _result([*words, "--force", "-o", os.fspath(output), *options], Path(output))
    with tempfile.TemporaryDirectory(prefix="ttrace-") as scratch:
        folder = Path(scratch) / "result"
        found = _result([*words, "-o", str(folder), *options], folder)
        # What to do next is said of what is gone by then.
        return replace(found, text=found.text.partition("\nNEXT")[0] + "\n", folder=None)


def _result(words: Sequence[str], folder: Path) -> Result:
    from ttrace._native import NotFoundError

    # One that was written before says nothing of this comparison.
    before = file_state(str(folder / "result.json"))
    done = _ttrace(words)
    both = done.stdout + done.stderr
    try:
        if before and file_state(str(folder / "result.json")) == before:
            raise NotFoundError("it is an older one")
        found = Result.read(folder, done.stdout)
    except NotFoundError:  # its options, or a folder that cannot be written
        reason = next((line for line in done.stderr.splitlines() if line.strip()), "no result")
        return Result.undecided(reason.removeprefix("ttrace: "), both, None)
    return found if not found.inconclusive else replace(found, text=both)


def _ttrace(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ttrace._cli", *words]
    return subprocess.run(command, capture_output=True, text=True, errors="replace")


def _iterations(wanted: int | str) -> str:
    """So many from the first, or FIRST:END."""
    return f"--iterations={_first_and_end(wanted)}"


def _first_and_end(wanted: int | str) -> str:
    return wanted if isinstance(wanted, str) else f"0:{wanted}"


def _end_of(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LINES:])
