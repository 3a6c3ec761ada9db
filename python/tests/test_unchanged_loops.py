"""Plain loops as people write them, with and without capture: not a bit may differ, whatever their
batches are made of and whoever calls whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from captured_run import index, run

DIGESTS = "python/tests/step_digests.py"

LOOPS = {
    "batches of several sizes": ("loop_cases/uneven_batch.py",),
    "lists of images and of dictionaries": ("loop_cases/lists_of_images.py",),
    "rows that each rank pads": ("loop_cases/tagger_of_padded_rows.py",),
    "a step with a closure": ("loop_cases/step_with_closure.py",),
}
# With micro-batches of several sizes, and rows dealt otherwise than in blocks.
MORE = {
    "a closure of uneven micro-batches": (
        *("honest/closure.py", "--uneven", "--accumulate", "2"),
        *("--deal", "strided", "--scale", "after"),
    ),
    "uneven lists": (
        *("honest/detection.py", "--uneven", "--accumulate", "2"),
        *("--deal", "permuted", "--pad", "longest", "--scale", "global"),
    ),
    "uneven padded rows": (
        *("honest/tagger.py", "--uneven", "--accumulate", "2"),
        *("--deal", "blocks", "--pad", "longest-left", "--scale", "hook"),
    ),
}


@pytest.fixture(scope="module")
def trace_of(tmp_path_factory):
    """The lines that a loop prints under capture, and its trace; each is run once."""
    made: dict[tuple[tuple[str, ...], int], tuple[list[str], Path]] = {}

    def captured(loop, ranks):
        if (loop, ranks) not in made:
            out = tmp_path_factory.mktemp("captured") / "trace"
            lines, log = run(loop, processes=ranks, script=DIGESTS, TTRACE_OUT=out)
            assert "ttrace:" not in log
            made[loop, ranks] = lines, out
        return made[loop, ranks]

    return captured


def named(loops, *marks):
    return [pytest.param(loop, id=name, marks=marks) for name, loop in loops.items()]


ALL = [*named(LOOPS), *named(MORE, pytest.mark.matrix)]
# The masks of dropout are grafted by place, and change the loss: a loop without.
PADDED = {"rows that each rank pads": ("honest/tagger.py", "--pad", "longest", "--deal", "strided")}
KEPT = [*named(LOOPS | PADDED), *named(MORE, pytest.mark.matrix)]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("loop", ALL)
def test_losses_gradients_parameters_and_random_states_are_equal(loop, ranks, trace_of):
    plain, _ = run(loop, processes=ranks, script=DIGESTS)
    captured, out = trace_of(loop, ranks)
    assert captured == plain
    for rank in range(ranks):
        lines = index(out, rank)
        assert lines[-1].items() >= {"type": "end", "complete": True, "reason": ""}.items()
        assert {e["iteration"] for e in lines if e["type"] == "seal"} == {0, 1}
        # That rows are known by their contents is a part of what may change nothing.
        assert [e for e in lines if e.get("kind") == "fed_rows"]


@pytest.mark.parametrize("loop", KEPT)
def test_rows_that_the_reference_has_stay_as_they_were_dealt(loop, trace_of, tmp_path):
    """Its weights are this run's, and of its rows each rank has other ones than by their place."""
    plain, _ = run(loop, processes=2, script=DIGESTS)
    reference = trace_of(loop, 1)[1]
    out = tmp_path / "trace"
    how = {"TTRACE_OUT": out, "TTRACE_GRAFT": reference}
    grafted, _ = run(loop, processes=2, script=DIGESTS, **how)
    first = [line for line in plain if line.startswith("step 0 ")]
    assert len(first) == 2
    assert [line for line in grafted if line.startswith("step 0 ")] == first
    notes = [e["data"] for rank in (0, 1) for e in index(out, rank) if e.get("kind") == "graft"]
    assert {n["differs"] for n in notes if n["what"] == "data" or n["iteration"] == 0} == {0}
