"""`ttrace` in tests: a fixture of that name, and what belongs to a test that fails.

    def test_tensor_parallel_block(ttrace):
        result = ttrace.compare(train_single, train_sharded)
        assert result.within, result.text

Loaded by pytest itself where ttrace is installed. Imports nothing of it until a test asks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ttrace.result import Result

_GOLDEN = "ttrace_golden"  # beside the test's file
_results = pytest.StashKey[list["Result"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ttrace")
    group.addoption(
        "--ttrace-update",
        action="store_true",
        help="record the references of golden() anew, and accept them",
    )
    group.addoption(
        "--ttrace-report",
        metavar="DIR",
        help="keep the reports of tests that fail in DIR (else in the test's temporary folder)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ttrace(ranks=(1, 2)): how many ranks compare() and golden() use in this test"
    )


class Comparisons:
    """The fixture: comparisons of one test."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder
        mark = request.node.get_closest_marker("ttrace")
        if mark is not None and (mark.args or set(mark.kwargs) - {"ranks"}):
            raise pytest.UsageError("write @pytest.mark.ttrace(ranks=(REFERENCE, CANDIDATE))")
        self._ranks = tuple(mark.kwargs.get("ranks", (1, 2))) if mark else (1, 2)
        request.node.stash[_results] = []

    def compare(
        self,
        reference: Callable[..., Any],
        candidate: Callable[..., Any],
        *,
        ranks: tuple[int, int] | None = None,
        **options: Any,
    ) -> Result:
        """As ttrace.compare; `ranks` by default those of the test's mark."""
        from ttrace.comparison import compare

        count = ranks or self._ranks
        return self._add(compare(reference, candidate, ranks=count, output=self._next(), **options))

    def golden(
        self,
        name: str,
        reference: Callable[..., Any],
        candidate: Callable[..., Any],
        *,
        ranks: tuple[int, int] | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        iterations: int | str = 2,
        group: Any = None,
        **options: Any,
    ) -> Result:
        """As compare(), with a baseline of the reference that is kept beside the test's file, in
        ttrace_golden/NAME: small sketches, for the repository. `--ttrace-update` records it, and
        records it anew."""
        from ttrace.comparison import accept, compare

        if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
            raise ValueError(f"{name!r} is no name of a folder: use letters, digits, - and _")
        golden = Path(self._request.path).parent / _GOLDEN / name
        count = ranks or self._ranks
        same: dict[str, Any] = {
            "args": args,
            "kwargs": kwargs,
            "iterations": iterations,
            "group": group,
        }
        if self._request.config.getoption("--ttrace-update"):
            golden.parent.mkdir(exist_ok=True)
            accept(reference, golden, ranks=count[0], **same)
        elif not golden.exists():
            pytest.fail(
                f"there is no baseline {golden}: run `pytest --ttrace-update` on a version that "
                "you trust, and commit it",
                pytrace=False,
            )
        return self._add(
            compare(
                None, candidate, ranks=count, golden=golden, output=self._next(), **same, **options
            )
        )

    def check(self, reference: Any, candidate: Any, **options: Any) -> Result:
        """As ttrace.check."""
        from ttrace.comparison import check

        return self._add(check(reference, candidate, output=self._next(), **options))

    def _next(self) -> Path:
        return self._folder / f"comparison-{len(self._request.node.stash[_results])}"

    def _add(self, result: Result) -> Result:
        self._request.node.stash[_results].append(result)
        first = result.culprits[0].fqn if result.culprits else ""
        self._request.node.user_properties += [
            ("ttrace_verdict", result.verdict),
            ("ttrace_reason", result.reason),
            ("ttrace_first", first),
        ]
        return result


@pytest.fixture
def ttrace(request: pytest.FixtureRequest, tmp_path: Path) -> Comparisons:
    """Compares functions that train: compare(), golden(), check()."""
    kept = request.config.getoption("--ttrace-report")
    folder = tmp_path / "ttrace"
    if kept:
        # Two names may become one, and a file's name is at most 255 bytes.
        name = request.node.nodeid
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        shown = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:120]
        folder = Path(kept).absolute() / f"{shown}-{digest}"
    return Comparisons(request, folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    results = item.stash.get(_results, [])
    if report.when == "call" and report.failed:
        for result in results:
            if result.within or result.folder is None:
                continue
            page = result.folder / "index.html"
            report.sections.append(("ttrace", f"{result.verdict}: {result.reason}\n{page}"))
    return report
