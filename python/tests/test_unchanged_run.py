"""Real megatron-core training, with and without capture: not a bit may differ."""

import pytest

from captured_run import ROOT, index, run

pytest.importorskip("megatron.core")

STEPS = ["--steps", "3", "--print-state"]

CASES = [
    (
        1,
        ["--bf16", "--dropout", "0.1", "--graph-safe-rng", "--fused-wgrad"],
        "replay,noise:1,fp32,fp32.noise:1",
    ),
    (
        2,
        [*("--tp", "2", "--sp", "--recompute", "--dropout", "0.1"), "--linears", "te-fused"],
        "replay,noise:1",
    ),
    pytest.param(2, ["--pp", "2", "--bf16"], "replay,fp32", marks=pytest.mark.matrix),
    (2, ["--tp", "2", "--sp", "--fp16", "--linears", "te", "--norm", "own"], "replay,fp32"),
    (1, ["--repeat", "--feed-forward", "own"], "replay"),
    (1, ["--compile", "mlp"], "replay,noise:1"),
]


@pytest.mark.parametrize(("processes", "arguments", "legs"), CASES)
def test_losses_parameters_and_random_states_are_equal(tmp_path, processes, arguments, legs):
    plain, _ = run([*STEPS, *arguments], processes=processes)
    out = tmp_path / "trace"
    captured, log = run([*STEPS, *arguments], processes=processes, TTRACE_OUT=out, TTRACE_LEGS=legs)
    assert captured == plain
    assert "ttrace:" not in log
    for rank in range(processes):
        entries = index(out, rank)
        assert entries[-1].items() >= {"type": "end", "complete": True, "reason": ""}.items()
        sealed = {(e["iteration"], e["leg"]) for e in entries if e["type"] == "seal"}
        assert {iteration for iteration, _ in sealed} == {0, 1}
        assert {leg for _, leg in sealed} >= {"real", "replay"}
        notes = [e for e in entries if e["type"] == "note"]
        assert not [n for n in notes if n["kind"] in ("replay", "stopped", "leg_skipped")]


@pytest.mark.parametrize("tracker", [[], ["--graph-safe-rng"]], ids=["states", "generators"])
def test_reruns_repeat_the_real_call_bit_by_bit(tmp_path, tracker):
    out = tmp_path / "trace"
    run(["--steps", "1", "--dropout", "0.1", *tracker], TTRACE_OUT=out, TTRACE_LEGS="replay",
        TTRACE_ITERATIONS="0:1")  # fmt: skip
    legs = {"real": {}, "replay": {}}
    for entry in index(out):
        if entry["type"] == "record" and entry["role"] in ("output", "grad_input", "grad_reduced"):
            key = tuple(entry[k] for k in ("fqn", "role", "arg", "micro_batch", "call", "pass"))
            legs[entry["leg"]][key] = entry["xxh3"]
    assert len(legs["real"]) > 100
    assert legs["real"] == legs["replay"]


def test_another_authors_loop_is_captured_with_its_evaluation_left_out(tmp_path):
    arguments = ["--steps", "3", "--evaluate"]
    plain, _ = run(arguments, script="zoo/own_loop.py")
    out = tmp_path / "trace"
    captured, _ = run(arguments, script="zoo/own_loop.py", TTRACE_OUT=out, TTRACE_LEGS="replay")
    assert captured == plain
    micro_batches = {e["micro_batch"] for e in index(out) if e["type"] == "record"}
    assert micro_batches == {-1, 0, 1, 2, 3}


@pytest.mark.parametrize("batches", ["hidden", "by-hand"])
def test_reruns_take_nothing_from_batches_that_no_iterator_hands_out(tmp_path, batches):
    arguments = ["--steps", "3", "--batches", batches]
    plain, _ = run(arguments, script="zoo/own_loop.py")
    out = tmp_path / "trace"
    legs = "replay,noise:1"
    captured, _ = run(arguments, script="zoo/own_loop.py", TTRACE_OUT=out, TTRACE_LEGS=legs)
    assert captured == plain
    sealed = {(e["iteration"], e["leg"]) for e in index(out) if e["type"] == "seal"}
    assert sealed == {(i, leg) for i in (0, 1) for leg in ("real", "replay", "noise.1")}


def test_a_full_disk_ends_capture_with_one_line_and_not_the_run(tmp_path):
    arguments = [*STEPS, "--tp", "2"]
    plain, _ = run(arguments, processes=2)
    limited = tmp_path / "limited.py"
    limited.write_text(
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21))\n"
        f"sys.path.insert(0, {str(ROOT / 'zoo')!r})\n"
        f"runpy.run_path({str(ROOT / 'zoo/train_gpt.py')!r}, run_name='__main__')\n"
    )
    out = tmp_path / "trace"
    captured, log = run(
        arguments, processes=2, script=str(limited), TTRACE_OUT=out, TTRACE_LEGS="replay"
    )
    assert captured == plain
    for rank in range(2):
        assert log.count(f"ttrace: rank {rank}: capture stopped:") == 1
        assert index(out, rank)[-1]["complete"] is False


def test_a_grafted_run_computes_what_the_reference_computed(tmp_path):
    reference, out = tmp_path / "reference", tmp_path / "candidate"
    arguments = ["--steps", "2"]
    expected, _ = run(arguments, TTRACE_OUT=reference)
    # Other weights and other data, were it left alone.
    alone, _ = run([*arguments, "--seed", "99"])
    grafted, _ = run([*arguments, "--seed", "99"], TTRACE_OUT=out, TTRACE_GRAFT=reference)
    assert alone != expected
    assert grafted == expected
    notes = [e["data"] for e in index(out) if e.get("kind") == "graft"]
    assert {(n["what"], n["iteration"]) for n in notes} == {
        (what, iteration) for what in ("weights", "data") for iteration in (0, 1)
    }
    assert all(0 < n["differs"] <= n["of"] for n in notes if n["iteration"] == 0)
