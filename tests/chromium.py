"""Chromium without a window, as a reader opens the page: from a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

TTRACE = Path(sys.executable).with_name("ttrace")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def render(html: Path, *results: Path) -> Path:
    done = subprocess.run(
        [str(TTRACE), "report", *map(str, results), "--html", str(html)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return html


@contextlib.contextmanager
def started() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    # Its sandbox needs a user that is not root.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: object, path: Path, fragment: str = "", **context: object) -> Iterator[object]:
    """A page, which may say nothing in its console and ask for nothing but itself."""
    own = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
    said: list[str] = []
    page = own.new_page()
    page.on("console", lambda message: said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: said.append(f"request: {request.url[:200]}"))
    page.set_default_timeout(5_000)
    page.goto(f"file://{path}{fragment}")
    yield page
    asked = [line for line in said if not is_of_page(line, path)]
    own.close()
    assert not asked, asked


def first_paint(page: object) -> float:
    """Milliseconds from the start of its navigation. Asked for until it is there: an observer would
    not be called in a page without scripts."""
    entry = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    for _ in range(100):
        if found := page.evaluate(entry):
            return found
        page.wait_for_timeout(50)
    raise SystemExit("the page was not painted within 5 s")


def is_of_page(line: str, path: Path) -> bool:
    kind, _, url = line.partition(": ")
    return kind == "request" and urlsplit(url).path == str(path)
