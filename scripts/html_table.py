#!/usr/bin/env python3
"""Writes docs/evidence/html_report.md, how large the HTML report is and when a browser first paints
it, and docs/pictures/report.png, what the demo's looks like.

    scripts/html_table.py DEMO    the result.json of `make demo`, or its folder

The other results are made, as those of the tests are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import chromium  # noqa: E402
import made_results  # noqa: E402

TABLE = ROOT / "docs" / "evidence" / "html_report.md"
PICTURE = ROOT / "docs" / "pictures" / "report.png"
TIMES = 5
# When everything that a script draws is there.
ALL_THERE = "() => performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart"

TEXT = """# The HTML report: sizes and time to first paint

Written by `scripts/html_table.py`, with Chromium {version} without a window on {cores} cores; each
page was opened {times} times from a file, and these are medians. *First paint* is the
first-contentful-paint of the Performance API; *all drawn* is the end of DOMContentLoaded, when the
script has drawn map, depth and table. All times from the start of the navigation.

| result | tensors | result.json | page | first paint | all drawn |
|---|---:|---:|---:|---:|---:|
{rows}

*demo* is the result of `make demo`, *no script* that page with JavaScript turned off. The others
are made by `tests/made_results.py`.
"""


def size(path: Path) -> str:
    return f"{path.stat().st_size / 1000:,.0f} KB"


def opened(browser: object, page: Path, script: bool = True) -> tuple[float, float]:
    paints, ends = [], []
    for _ in range(TIMES):
        with chromium.opened(browser, page, java_script_enabled=script) as view:
            paints.append(chromium.first_paint(view))
            ends.append(view.evaluate(ALL_THERE))
    return statistics.median(paints), statistics.median(ends)


def picture(browser: object, page: Path) -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    with chromium.opened(browser, page) as view:
        view.screenshot(path=PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demo", type=Path)
    demo = parser.parse_args().demo
    demo = demo / "result.json" if demo.is_dir() else demo
    rows = []
    with tempfile.TemporaryDirectory() as scratch, chromium.started() as browser:
        folder = Path(scratch)
        results = {"demo": demo}
        for kind in ("clean", "inconclusive", "large", "hostile"):
            made = getattr(made_results, kind)()
            results[kind] = made_results.write(made, folder / kind)
        for kind, result in results.items():
            page = chromium.render(folder / f"{kind}.html", result)
            paint, end = opened(browser, page)
            count = len(json.loads(result.read_text())["tensors"])
            rows.append(
                f"| {kind} | {count:,} | {size(result)} | {size(page)} | {paint:.0f} ms "
                f"| {end:.0f} ms |"
            )
            if kind == "demo":
                paint, _ = opened(browser, page, script=False)
                rows.append(
                    f"| demo, no script | {count:,} | {size(result)} | {size(page)} "
                    f"| {paint:.0f} ms | |"
                )
                picture(browser, page)
        version = browser.version
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(
        TEXT.format(version=version, cores=os.cpu_count(), times=TIMES, rows="\n".join(rows))
    )
    print(TABLE.read_text())
    print(f"{PICTURE}: {size(PICTURE)}")


if __name__ == "__main__":
    main()
