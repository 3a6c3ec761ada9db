"""The honest programs of scripts/honest.py: what is drawn, what holds it to be honest, and how the
table counts."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "zoo/honest")]
from dealing import DEALS, deal  # noqa: E402

from honest_table import draw as drawing  # noqa: E402
from honest_table.in_float64 import compare  # noqa: E402
from honest_table.kinds import FAULTS, KINDS  # noqa: E402
from honest_table.table import judged_fault, state, write_table  # noqa: E402

ROWS = list(range(16, 24))


@pytest.mark.parametrize("how", DEALS)
@pytest.mark.parametrize(("ranks", "micro_batches", "rows"), [(2, 2, 8), (4, 2, 8), (2, 1, 5)])
def test_ranks_together_take_every_row_once(
    how: str, ranks: int, micro_batches: int, rows: int
) -> None:
    dealt = [deal(ROWS[:rows], how, rank, ranks, micro_batches) for rank in range(ranks)]
    assert all(len(batches) == micro_batches for batches in dealt)
    taken = itertools.chain.from_iterable(itertools.chain.from_iterable(dealt))
    assert sorted(taken) == ROWS[:rows]


def test_ways_to_deal_differ_in_who_takes_what() -> None:
    first = {how: deal(ROWS, how, 0, 2, 2) for how in DEALS}
    assert first["contiguous"] == [[16, 17], [18, 19]]
    assert first["strided"] == [[16, 18], [20, 22]]
    assert first["blocks"] == [[16, 17], [20, 21]]
    assert first["permuted"] != first["contiguous"]
    assert deal(ROWS, "permuted", 0, 1, 1, 0) != deal(ROWS, "permuted", 0, 1, 1, 1)


def test_no_draw_is_of_a_kind_that_cannot_be_honest() -> None:
    for draw in itertools.islice(drawing.draws("A", 5), 400):
        (kind,) = (kind for kind in KINDS if kind.name == draw.kind)
        assert draw.script().exists()
        assert draw.scale in kind.scales and draw.deal in kind.deals
        if draw.scale == "mean":  # a mean of means is the mean only of equal counts
            assert not draw.uneven and (kind.counts_rows or draw.pad == "none")
        if kind.sees_batch:
            assert draw.accumulate == draw.reference_accumulate == 1
        if kind.even:
            assert not draw.uneven
        assert 8 % (draw.ranks * draw.accumulate) == 0
        assert 8 % draw.reference_accumulate == 0
        faults = set(drawing.possible_faults(draw))
        if faults & {"labels", "pairs"}:  # rows of one micro-batch are mixed
            assert draw.ranks * draw.accumulate <= 4
        if faults & {"padding", "lengths"}:
            assert draw.pad != "none"


def test_a_library_comes_once_and_every_loop_at_all() -> None:
    count = Counter(draw.kind for draw in itertools.islice(drawing.draws("B", 5), 200))
    assert set(count) == {kind.name for kind in KINDS}
    assert all(count[kind.name] == 1 for kind in KINDS if kind.is_closed)


def test_faults_are_of_every_kind_that_changes_something() -> None:
    draws = list(itertools.islice(drawing.draws("A", 5), 75))
    spread = drawing.spread(draws, 20, lambda draw: draw.fault != "noise")
    count = Counter(draw.fault for draw in spread)
    assert count.pop("") == 55 and "noise" not in count
    assert set(count.values()) <= {2, 3} and len(count) == len(FAULTS) - 1
    assert [dataclasses.replace(draw, fault="") for draw in spread] == draws


def test_the_frozen_halves_are_numbered_and_share_no_draw() -> None:
    halves = {half: [d for d in drawing.read() if d.half == half] for half in drawing.HALVES}
    for draws in halves.values():
        assert [draw.number for draw in draws] == list(range(len(draws)))
        assert sum(bool(draw.fault) for draw in draws) <= 20
    plain = {
        half: {dataclasses.replace(d, half="", number=0, fault="") for d in draws}
        for half, draws in halves.items()
    }
    assert not plain["A"] & plain["B"]


def simple(**changes: object) -> drawing.Draw:
    plain = drawing.Draw("A", 0, "regression", "strided", "none", "mean", 2, 1, 1, False, "labels")
    return dataclasses.replace(plain, **changes)


def test_float64_tells_an_honest_program_from_one_with_a_fault() -> None:
    draw = simple()
    honest = compare((1, draw.reference()), (2, draw.candidate()))
    assert honest.holds, honest
    wrong = compare((1, draw.reference()), (2, draw.candidate(with_fault=True)))
    assert not wrong.holds and not wrong.problem, wrong


@pytest.mark.matrix
def test_a_program_that_fails_on_a_rank_is_not_honest() -> None:
    draw = simple()
    failed = compare((1, draw.reference()), (2, [str(draw.script()), "--fault", "unknown"]))
    assert not failed.holds and "SystemExit" in failed.problem


WITHIN = {"name": "A0", "fault": "", "verdict": "within", "largest": {"headroom": 0.25}}
ACCUSED = {
    **WITHIN,
    "verdict": "diverged",
    "reason": "",
    "culprits": ["0.weight grad_reduced"],
    "classes": ["K"],
    "stage": "communication",
}


def test_an_accused_or_crashed_program_is_never_counted_as_open() -> None:
    assert state(WITHIN) == state({"verdict": "bitwise_equal"}) == "within"
    assert state(ACCUSED) == state({"verdict": "crashed"}) == "accused"
    assert state({"verdict": "inconclusive"}) == state({"verdict": "refused"}) == "open"


def test_a_fault_is_placed_only_at_its_own_stage() -> None:
    assert judged_fault(simple(fault="hook"), ACCUSED) == "placed"
    assert judged_fault(simple(fault="rows"), ACCUSED) == "found elsewhere"
    noted = {**WITHIN, "notes": ["its own data differed"]}
    assert judged_fault(simple(fault="rows"), noted) == "replaced"
    assert judged_fault(simple(fault="rows"), {**noted, "verdict": "inconclusive"}) == "open"
    assert judged_fault(simple(fault="factor"), noted) == "missed"
    assert judged_fault(simple(fault="factor"), {"verdict": "inconclusive"}) == "open"
    named = {
        "verdict": "inconclusive",
        "reason": "rank 1 with rows that the reference does not read",
    }
    assert judged_fault(simple(fault="rows"), named) == "named"
    assert judged_fault(simple(fault="factor"), named) == "open"


RECORDED = [
    {"kind": "graphs", "ranks": ranks, "difference": "losses" if ranks == 2 else ""}
    for ranks in (1, 2, 4)
]


def test_the_table_says_who_was_accused_and_of_what(tmp_path: Path) -> None:
    page = tmp_path / "honest.md"
    write_table(page, [simple(), simple(number=1)], [WITHIN, {**ACCUSED, "name": "A1"}], RECORDED)
    text = page.read_text()
    assert "| A | 2 | 2 | 1 | 1 | 0 | 0 |" in text
    assert "| A0 regression | 2 ranks, strided, mean | within |  | 0.25 |" in text
    assert "`0.weight grad_reduced` (K)" in text
    assert "| graphs | 1, 4 | 2 |" in text
