"""Holds for every test: a test process stays a plain Python process.

`megatron_cpu` makes `torch.cuda` mean the CPU and switches torch.compile off, for the whole
process. A test that needs it starts a process for it; enabled here, it would reach the tests of
other files.
"""

from __future__ import annotations

import sys

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    if "megatron_cpu" in sys.modules:
        raise pytest.UsageError("a test file imports megatron_cpu: run it in a process of its own")
