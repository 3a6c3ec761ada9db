"""Isolated legs on real megatron-core: a run isolated from its own values computes the same bits;
isolated from a reference it hides nothing and lets nothing through."""

from pathlib import Path

import pytest

from captured_run import index, run

pytest.importorskip("megatron.core")

TOPOLOGIES = [
    (1, ["--dropout", "0.1"]),
    (2, ["--tp", "2", "--sp", "--recompute"]),
    (2, ["--cp", "2", "--bf16"]),
    pytest.param(2, ["--pp", "2"], marks=pytest.mark.matrix),
]


def bytes_by_place(folder: Path, rank: int, leg: str) -> dict[tuple, str]:
    """Checksum of every record of a leg, by what it is and where it lies."""
    return {
        (e["fqn"], e["role"], e["arg"], e["call"], e["pass"], e["micro_batch"]): e["xxh3"]
        for e in index(folder, rank)
        if e["type"] == "record" and e["leg"] == leg and e["iteration"] == 0
    }


@pytest.mark.parametrize(("processes", "arguments"), TOPOLOGIES)
def test_isolated_from_its_own_values_a_run_repeats_itself(tmp_path, processes, arguments):
    out = tmp_path / "trace"
    legs = "isolated,fp32,fp32.isolated" if "--bf16" in arguments else "isolated"
    run(
        ["--steps", "1", *arguments],
        processes=processes,
        TTRACE_OUT=out,
        TTRACE_LEGS=legs,
        TTRACE_ITERATIONS="0:1",
    )
    for rank in range(processes):
        notes = [e for e in index(out, rank) if e["type"] == "note"]
        assert not [n for n in notes if n["kind"] in ("leg_skipped", "not_isolated", "stopped")]
        pairs = [("real", "isolated")]
        if "fp32" in legs:
            pairs.append(("fp32", "fp32.isolated"))
        for plain, isolated in pairs:
            before = bytes_by_place(out, rank, plain)
            alone = bytes_by_place(out, rank, isolated)
            roles = {place[1] for place in alone}
            assert roles >= {"input", "output", "grad_output", "grad_input", "grad_local"}
            # An input that the module overwrites has a gradient of its own only here, where it is
            # no view of something else.
            extra = {place[:2] for place in alone.keys() - before.keys()}
            assert all(fqn.endswith("softmax") and r == "grad_input" for fqn, r in extra), extra
            differing = [
                place for place in alone if alone[place] != before.get(place, alone[place])
            ]
            assert not differing, differing[:10]
