"""The HTML report in Chromium: what it shows, what can be done with it, and that names are text."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import chromium
import made_results

pytestmark = pytest.mark.skipif(
    not chromium.CHROMIUM, reason="no chromium is installed; scripts/setup_system.sh chromium"
)
KINDS = ("diverged", "stated", "clean", "inconclusive", "hostile", "large", "nothing")
FAULT = "decoder.layers.2.mlp.linear_fc1.weight"
FAULT_LINK = f"#tensor={FAULT}/grad_reduced/0/0//backward"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        kind: chromium.render(
            folder / f"{kind}.html",
            made_results.write(getattr(made_results, kind)(), folder / kind),
        )
        for kind in KINDS
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.started() as started:
        yield started


def column(page: Any, selector: str, name: str) -> list[float]:
    boxes = [cell.bounding_box() for cell in page.query_selector_all(selector)]
    return [box[name] for box in boxes if box]


def test_the_policy_permits_its_own_style_and_script(pages: dict[str, Path]) -> None:
    text = pages["diverged"].read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_opens_without_a_complaint_or_a_request(
    pages: dict[str, Path], browser: Any, kind: str
) -> None:
    with chromium.opened(browser, pages[kind]) as page:
        drawn = kind != "nothing"
        for part in ("#grid tbody tr", "#list tbody tr", "#plots svg"):
            assert (page.locator(part).count() > 0) == drawn, part
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_ten_thousand_tensors_take_less_than_a_megabyte(pages: dict[str, Path]) -> None:
    assert pages["large"].stat().st_size < 1_000_000


def test_the_map_opens_and_closes_by_keyboard(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["diverged"]) as page:
        rows = page.locator("#grid tbody tr")
        page.get_by_role("button", name="Layers", exact=True).click()
        closed = rows.count()
        page.locator("#grid [tabindex='0']").focus()
        page.keyboard.press("Home")
        for _ in range(closed):  # to the first that is closed
            focused = page.locator("#grid th:focus")
            if focused.locator("xpath=..").get_attribute("aria-expanded") == "false":
                break
            page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        row = page.locator("#grid th:focus").locator("xpath=..")
        assert row.get_attribute("aria-expanded") == "true"
        assert rows.count() > closed
        page.keyboard.press("ArrowLeft")
        assert rows.count() == closed
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert page.locator("#grid td:focus").count() == 1
        page.keyboard.press("Enter")
        assert page.locator("#drawer").is_visible()


def test_cells_of_a_column_stand_below_each_other_in_their_colours(
    pages: dict[str, Path], browser: Any
) -> None:
    with chromium.opened(browser, pages["diverged"]) as page:
        page.get_by_role("button", name="Everything").click()
        culprit = page.locator("#grid td.cul").first
        assert culprit.inner_text() == "\u25b830"
        place = culprit.evaluate("cell => cell.cellIndex")
        cells = f"#grid tbody td:nth-child({place + 1})[data-tensor]"
        assert len(set(column(page, cells, "x"))) == 1
        tops = column(page, cells, "y")
        assert len(tops) > 3 and tops == sorted(tops) and len(set(tops)) == len(tops)
        colours = {
            name: page.locator(f"#grid td.{name}").first.evaluate(
                "cell => getComputedStyle(cell).backgroundColor"
            )
            for name in ("s5", "s10")
        }
        assert colours == {"s5": "rgb(138, 181, 216)", "s10": "rgb(210, 83, 27)"}
        assert page.locator("#grid td.down").count() == 1, "the step follows from the gradient"
        # Forward, backward and gradients isolated, beside those as it was.
        assert page.locator("#grid thead tr:last-child th").count() == 14


def test_the_search_finds_filters_and_is_in_the_address(
    pages: dict[str, Path], browser: Any
) -> None:
    with chromium.opened(browser, pages["diverged"]) as page:
        rows = page.locator("#list tbody tr")
        assert rows.count() == 4, "it begins with what is out of bounds"
        page.get_by_label("verdicts").select_option("")
        assert rows.count() == 100
        page.keyboard.press("/")
        page.keyboard.type("layers.3. QKV")
        page.get_by_label("roles").select_option("grad_input")
        assert rows.count() == 2
        assert page.locator("#filters [role=status]").inner_text() == "2 of 192"
        page.reload()
        assert rows.count() == 2
        assert "find=layers.3.%20QKV" in page.url
        page.get_by_label("verdicts").select_option("diverged")
        assert rows.count() == 0
        page.get_by_label("Search").fill("")
        page.get_by_label("roles").select_option("")
        page.get_by_role("button", name="isolated").click()
        assert rows.first.locator("td").nth(7).inner_text() == "50"


def test_a_link_opens_its_tensor_and_back_closes_it(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["diverged"], FAULT_LINK) as page:
        drawer = page.locator("#drawer")
        text = drawer.inner_text()
        assert FAULT in text and "named as a fault" in text
        assert "8 x 16 bf16" in text and "ColumnParallelLinear" in text
        assert "noise 1.0e-02 x 2 (3 noise legs)" in text
        drawer.get_by_role("link", name="param_updated").click()
        assert "downstream of a fault" in drawer.inner_text()
        page.go_back()
        assert "named as a fault" in drawer.inner_text()
        page.keyboard.press("Escape")
        assert drawer.is_hidden()
        page.locator("#list tbody a").nth(2).click()
        assert "iteration 1" in drawer.inner_text()
        assert page.locator("#iterations [aria-pressed=true]").inner_text() == "1"


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.outerHTML")


def test_the_drawer_keeps_the_keys_and_gives_the_focus_back(
    pages: dict[str, Path], browser: Any
) -> None:
    with chromium.opened(browser, pages["diverged"]) as page:
        cell = page.locator("#grid td.cul").first
        cell.focus()
        page.keyboard.press("Enter")
        drawer = page.locator("#drawer")
        assert focused(page) == "drawer"
        inside = "document.getElementById('drawer').contains(document.activeElement)"
        stops = drawer.locator("a[href], button").count()
        assert stops > 3
        for keys in ("Tab", "Shift+Tab"):
            for _ in range(stops + 2):
                page.keyboard.press(keys)
                assert page.evaluate(inside), keys
        name = drawer.locator("h2").inner_text()
        history = page.evaluate("history.length")
        page.keyboard.press("ArrowRight")
        assert drawer.locator("h2").inner_text() != name, "the next in the order of execution"
        assert focused(page) == "drawer", "what had the focus was drawn anew"
        page.keyboard.press("ArrowLeft")
        assert drawer.locator("h2").inner_text() == name
        assert page.evaluate("history.length") == history, "one step back leaves the drawer"
        page.keyboard.press("Escape")
        assert drawer.is_hidden()
        assert "cul" in page.evaluate("document.activeElement.className")
    with chromium.opened(browser, pages["diverged"], FAULT_LINK) as page:
        page.keyboard.press("Escape")
        assert "cul" in page.evaluate("document.activeElement.className"), "nothing had it before"


def test_a_culprit_without_a_tensor_is_in_the_map(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["stated"]) as page:
        marked = page.locator("#grid td.cul")
        assert sorted(marked.all_inner_texts()) == ["\u25b8H", "\u25b8U"]
        columns = page.locator("#grid thead tr:last-child").locator("th, td").all_inner_texts()
        mask = page.locator("#grid tr", has_text="dropout").locator("td.cul")
        assert columns[mask.evaluate("cell => cell.cellIndex")] == "out"
        step = page.locator("#grid tr", has_text="head").locator("td.cul")
        assert columns[step.evaluate("cell => cell.cellIndex")] == "step"
        mask.click()
        assert page.locator("#place-1").evaluate("place => place.open")
        assert page.locator("#drawer").is_hidden()
        step.focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator("#grid td:focus, #grid th:focus").count() == 1
        page.get_by_role("button", name="Only what is out").click()
        assert marked.count() == 2
        page.locator("#iterations button", has_text="1").click()
        assert marked.count() == 0


def test_what_decides_is_said_and_coloured(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["stated"]) as page:
        row = page.locator("#list tbody tr", has_text="grad_norm")
        assert row.locator("td").nth(5).inner_text() == "\u2260"
        assert page.locator("#grid td.s12").inner_text() == "\u2260"
        row.locator("a").click()
        said = page.locator("#drawer").inner_text()
        assert "its copies differ, and must be equal" in said
        assert "0.04: within its bound, which is not what decides" in said
    with chromium.opened(browser, pages["stated"], java_script_enabled=False) as page:
        assert "\u2260" in page.locator("#list tbody tr", has_text="grad_norm").inner_text()


def test_iterations_switch(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["diverged"]) as page:
        assert page.locator("#grid td.cul").count() == 2
        page.locator("figcaption button", has_text="1").click()
        assert page.locator("#iterations [aria-pressed=true]").inner_text() == "1"
        assert page.locator("#grid td.cul").count() == 0
        assert page.locator("#grid td.aff").count() > 0, "the same fault, an iteration later"
        assert "iteration=1" in page.url


def test_depth_has_a_keyboard_path(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["diverged"]) as page:
        page.locator("#plots").focus()
        page.keyboard.press("End")
        said = page.locator("#readout").inner_text()
        assert "grad_reduced" in said and "real: error" in said
        page.keyboard.press("Home")
        assert "output" in page.locator("#readout").inner_text()
        page.keyboard.press("Enter")
        assert page.locator("#drawer").is_visible()
        page.keyboard.press("Escape")
        dots = page.locator("#plots .dot.out").first
        whole = dots.get_attribute("d")
        page.get_by_role("button", name="reduced gradients").click()
        assert dots.get_attribute("d") != whole
        box = page.locator("#plots svg").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60)
        page.mouse.up()
        assert " of 60 tensors" in page.locator("#depthtools").inner_text()


def test_dark_is_dark(pages: dict[str, Path], browser: Any) -> None:
    def light(page: Any, selector: str, name: str) -> float:
        words = page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{name}")
        return sum(map(int, re.findall(r"\d+", words)[:3])) / 765

    for scheme, is_dark in (("light", False), ("dark", True)):
        with chromium.opened(browser, pages["diverged"], color_scheme=scheme) as page:
            assert (light(page, "body", "backgroundColor") < 0.2) == is_dark
            assert (light(page, "body", "color") > 0.8) == is_dark


@pytest.mark.parametrize("kind", ("diverged", "inconclusive", "clean"))
def test_essentials_need_no_script(pages: dict[str, Path], browser: Any, kind: str) -> None:
    with chromium.opened(browser, pages[kind], java_script_enabled=False) as page:
        first = {
            "diverged": FAULT,
            "inconclusive": "no grad_local of Linear can be judged",
            "clean": "Closest to its bound",
        }[kind]
        assert first in page.locator("#summary").inner_text()
        assert page.locator("svg.overview rect").count() > 10
        assert page.locator("#list tbody tr").count() == 25
        assert page.locator("noscript").first.is_visible()
        coverage = page.locator("#coverage").inner_text()
        assert "out/candidate" in coverage and "4,000 tests" in coverage
        if kind == "diverged":
            assert page.locator("table.evidence svg").count() > 3
            assert page.locator("svg.mesh rect.ring").count() == 2
            assert page.locator("svg.blocks rect").count() == 4
        assert page.locator(".tools:visible, button:visible").count() == 0


def test_print_has_no_controls(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["diverged"], FAULT_LINK) as page:
        assert page.locator(".tools:visible").count() == 3
        page.emulate_media(media="print")
        assert (
            page.locator("nav, .tools, .copy, #drawer, #tip").locator("visible=true").count() == 0
        )
        assert page.locator("#grid td.cul").first.is_visible()


@pytest.mark.parametrize("kind", ("diverged", "stated", "inconclusive", "clean", "hostile"))
def test_print_cuts_nothing_at_the_edge(pages: dict[str, Path], browser: Any, kind: str) -> None:
    # A4 upright, with margins of a centimetre.
    width = 718
    with chromium.opened(browser, pages[kind], viewport={"width": width, "height": 900}) as page:
        page.get_by_role("button", name="Everything").click()
        page.emulate_media(media="print")
        edges = page.evaluate(
            "[...document.querySelectorAll('table, svg')].filter((e) => e.getClientRects().length)"
            ".map((e) => [e.getBoundingClientRect().right, e.outerHTML.slice(0, 80)])"
        )
        assert len(edges) > 5
        assert [edge for edge in edges if edge[0] > width] == []


def test_a_phone_shows_it_without_scrolling_sideways(pages: dict[str, Path], browser: Any) -> None:
    for kind in ("diverged", "inconclusive", "hostile"):
        with chromium.opened(browser, pages[kind], viewport={"width": 390, "height": 800}) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, kind


def test_names_are_text_whatever_they_hold(pages: dict[str, Path], browser: Any) -> None:
    def run(page: Any) -> None:
        assert page.evaluate("window.hit") is None
        assert page.locator("img").count() == 0

    with chromium.opened(browser, pages["hostile"]) as page:
        page.get_by_label("verdicts").select_option("")
        names = page.locator("#list .fqn").all_inner_texts()
        assert len(names) == len(made_results.HOSTILE)
        assert {names.count(name) for name in names} == {1}
        assert "c\\u{202e}gnp.exe\\u{2066}" in names
        assert "d\\x00\\x1b[31m\\n\\r\\t" in names
        assert max(map(len, names)) < 400
        assert not set("\u202e\u2066\x1b\0") & set(page.content())
        for k in range(len(names)):
            page.locator("#list .fqn a").nth(k).click()
            assert page.locator("#drawer h2").inner_text() == names[k]
            if k in (0, 4, 7):  # a script, a long one, one like an address
                page.reload()
                assert page.locator("#drawer h2").inner_text() == names[k]
        run(page)
    for fragment in (
        "#tensor=" + quote(made_results.HOSTILE[0], safe="") + "/output/0/0/x/forward",
        "#tensor=%E0%A4%A&find=%zz&iteration=9&verdict=<b>",
        "#find=" + quote(made_results.HOSTILE[1]) + "&__proto__=1",
        "#" + "&=" * 200,
    ):
        with chromium.opened(browser, pages["hostile"], fragment) as page:
            assert page.locator("#grid tbody tr").count() > 0
            run(page)


def test_a_map_of_many_rows_is_drawn_in_pieces(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["large"]) as page:
        page.get_by_role("button", name="Everything").click()
        rows = page.locator("#grid tbody tr")
        assert rows.count() == 1201
        page.locator("#grid .more button").click()
        assert rows.count() > 1201
        page.get_by_role("button", name="Only what is out").click()
        assert 0 < rows.count() < 10


def test_commands_are_copied_or_selected(pages: dict[str, Path], browser: Any) -> None:
    with chromium.opened(browser, pages["diverged"]) as page:
        button = page.locator(".next .copy").first
        button.click()
        page.wait_for_function("b => b.textContent !== 'copy'", arg=button.element_handle())
        if button.inner_text() == "selected":
            assert page.evaluate("String(getSelection())") == "ttrace inspect out/candidate"


def test_results_side_by_side_show_what_changed(tmp_path: Path, browser: Any) -> None:
    results = [
        made_results.write(made, tmp_path / name)
        for name, made in (
            ("monday", made_results.clean()),
            ("tuesday", made_results.diverged()),
            ("wednesday", made_results.inconclusive()),
        )
    ]
    html = chromium.render(tmp_path / "days.html", *results)
    with chromium.opened(browser, html, java_script_enabled=False) as page:
        text = page.locator("main").inner_text()
        for words in ("Within bounds", "Diverged", "Could not decide", FAULT, "monday/index.html"):
            assert words in text, words
        same = page.locator("tr.same")
        assert page.locator("tr.changed").count() == 4 and same.count() == 0
    html = chromium.render(tmp_path / "two.html", results[0], results[1])
    with chromium.opened(browser, html, java_script_enabled=False) as page:
        assert page.locator("tr.changed th").all_inner_texts() == ["decoder.layers.2"]
        assert page.locator("tr.same").first.is_visible()
        page.get_by_label("only what changed").first.check()
        assert page.locator("tr.same").first.is_hidden()
        assert page.locator("tr.changed").is_visible()
