"""Holds for every test: a test process stays a plain Python process; and which files come first.

`megatron_cpu` makes `torch.cuda` mean the CPU and switches torch.compile off, for the whole
process. A test that needs it starts a process for it; enabled here, it would reach the tests of
other files.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable

import pytest

import rank_server

# Build and tests of C++ are a third of all work, one after the other, and clang-tidy takes minutes:
# begun late, one core is at them when there is nothing left for the other.
LONGEST = ("test_build.py", "test_static_checks.py")


# Before torch is imported, which reads it then: there are more workers than cores already, and
# threads of one that has nothing to do ask again and again whether there is something.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ranks = contextlib.ExitStack()
refusals = pytest.StashKey[Callable[[], Counter[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    """One server of ranks for all workers, which inherit where it is."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.stash[refusals] = ranks.enter_context(rank_server.serving())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Starts that were no copies take many times as long, and nobody would see it."""
    for reason, times in config.stash[refusals]().most_common() if refusals in config.stash else ():
        terminalreporter.write_line(f"slow start of ranks, {times} times: {reason}")


def pytest_unconfigure(config: pytest.Config) -> None:
    ranks.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then those of most tests, each as a whole."""
    tests = Counter(item.path for item in items)
    files = {path: place for place, path in enumerate(tests)}
    items.sort(
        key=lambda item: (item.path.name not in LONGEST, -tests[item.path], files[item.path])
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    # Nothing of what was imported so far is garbage.
    gc.freeze()
    if "megatron_cpu" in sys.modules:
        raise pytest.UsageError("a test file imports megatron_cpu: run it in a process of its own")
