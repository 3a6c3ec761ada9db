"""The trainer is right without a bug, and each bug does what it is said to do."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ZOO = Path(__file__).resolve().parent
sys.path.insert(0, str(ZOO))

import bug_catalog

LINE = re.compile(r"^(?:step|iteration) \d+:? loss (\S+?)(?:,? (?:grad_)?norm (\S+))?$", re.M)

SEQUENCE_PARALLEL = ("--tp", "2", "--sp")
# Topologies in which one seed gives the weights of a single process. A pipeline stage draws its
# own.
SEED_EQUAL = {
    "TP2": (2, ("--tp", "2")),
    "TP2+SP": (2, SEQUENCE_PARALLEL),
    "CP2": (2, ("--cp", "2")),
    "DP2": (2, ()),
    "TP2+SP recompute": (2, (*SEQUENCE_PARALLEL, "--recompute")),
}
# Round-off only. Adam turns the smallest of gradients into whole steps, hence the second figure.
FIRST_STEP, LATER_STEPS = 1e-6, 1e-5


class Step(NamedTuple):
    loss: float
    norm: float


@functools.cache
def output_of(processes: int, script: str, *flags: str) -> str:
    """Standard output of a run; each distinct run happens once."""
    command = [sys.executable]
    if processes:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(processes)]
    environment = {key: value for key, value in os.environ.items() if key != "ZOO_BUG"}
    done = subprocess.run(
        [*command, str(ZOO / script), *flags],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def steps_of(processes: int, script: str, *flags: str) -> list[Step]:
    found = LINE.findall(output_of(processes, script, *flags))
    assert found, "the script has printed no losses"
    return [Step(float(loss), float(norm or "nan")) for loss, norm in found]


def train(processes: int, *flags: str) -> list[Step]:
    return steps_of(processes, "train_gpt.py", *flags)


def assert_equal_but_for_round_off(run: list[Step], reference: list[Step]) -> None:
    assert len(run) == len(reference) == 3
    for number, (step, expected) in enumerate(zip(run, reference, strict=True)):
        tolerance = FIRST_STEP if number == 0 else LATER_STEPS
        assert step.loss == pytest.approx(expected.loss, rel=tolerance), f"step {number}"
        assert step.norm == pytest.approx(expected.norm, rel=tolerance), f"step {number}"


@pytest.mark.matrix
@pytest.mark.parametrize("topology", SEED_EQUAL)
def test_topology_trains_like_one_process(topology: str) -> None:
    processes, flags = SEED_EQUAL[topology]
    assert_equal_but_for_round_off(train(processes, *flags), train(0))


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("processes", "flags"),
    [(4, (*SEQUENCE_PARALLEL, "--cp", "2")), (4, SEQUENCE_PARALLEL)],
    ids=["TP2+SP x CP2", "TP2+SP x DP2"],
)
def test_four_processes_train_like_one(processes: int, flags: tuple[str, ...]) -> None:
    assert_equal_but_for_round_off(train(processes, *flags), train(0))


@pytest.mark.matrix
def test_untied_model_without_gate_trains_like_one_process() -> None:
    flags = ("--no-tied", "--no-gated", "--kv-groups", "4")
    assert_equal_but_for_round_off(train(2, *SEQUENCE_PARALLEL, *flags), train(0, *flags))


@pytest.mark.matrix
def test_torchrun_with_one_process_equals_plain_python_bitwise() -> None:
    assert output_of(1, "train_gpt.py") == output_of(0, "train_gpt.py")


@pytest.mark.matrix
def test_pipeline_has_weights_of_its_own_and_a_like_loss() -> None:
    pipeline, single = train(2, "--pp", "2"), train(0)
    assert pipeline[0].loss != single[0].loss
    for step, expected in zip(pipeline, single, strict=True):
        assert step.loss == pytest.approx(expected.loss, rel=0.01)


@pytest.mark.matrix
def test_pipeline_trains_the_same_with_and_without_tensor_parallelism() -> None:
    both = train(4, "--pp", "2", *SEQUENCE_PARALLEL)
    assert_equal_but_for_round_off(both, train(2, "--pp", "2"))


@pytest.mark.matrix
def test_bf16_stays_near_fp32_but_is_another_computation() -> None:
    low, full = train(0, "--bf16"), train(0)
    assert low[0].loss != full[0].loss
    for step, expected in zip(low, full, strict=True):
        assert step.loss == pytest.approx(expected.loss, rel=1e-3)


@pytest.mark.matrix
@pytest.mark.parametrize("flags", [SEQUENCE_PARALLEL, ("--cp", "2"), ()], ids=str)
def test_bf16_topology_stays_near_one_process(flags: tuple[str, ...]) -> None:
    for step, expected in zip(train(2, *flags, "--bf16"), train(0, "--bf16"), strict=True):
        assert step.loss == pytest.approx(expected.loss, rel=1e-3)
        assert step.norm == pytest.approx(expected.norm, rel=2e-2)


@pytest.mark.matrix
def test_uneven_mask_equals_one_process_when_tokens_are_counted_globally() -> None:
    flags = ("--loss-mask", "uneven", "--per-token-loss")
    assert_equal_but_for_round_off(train(2, "--cp", "2", *flags), train(0, *flags))


@pytest.mark.matrix
def test_uneven_mask_under_cp_is_a_mean_of_means_without_per_token_loss() -> None:
    run, single = train(2, "--cp", "2", "--loss-mask", "uneven"), train(0, "--loss-mask", "uneven")
    assert run[0].loss == pytest.approx(single[0].loss, rel=FIRST_STEP)
    assert run[0].norm != pytest.approx(single[0].norm, rel=1e-3)


@pytest.mark.matrix
def test_the_data_can_be_learned() -> None:
    steps = train(0, "--steps", "60", "--lr", "5e-3")
    assert steps[-1].loss < steps[0].loss - 2.0


def test_state_lines_are_complete_and_repeat_bitwise() -> None:
    flags = ("--print-state", *SEQUENCE_PARALLEL)
    once = output_of(2, "train_gpt.py", *flags)
    again = output_of.__wrapped__(2, "train_gpt.py", *flags)
    pattern = re.compile(r"^state rank (\d) parameters ([0-9a-f]{64}) random ([0-9a-f]{64})$", re.M)
    states = sorted(pattern.findall(once))
    assert [rank for rank, _, _ in states] == ["0", "1"]
    assert states == sorted(pattern.findall(again))
    # Each rank has its own part of the weights and its own model-parallel random state.
    assert states[0][1] != states[1][1]
    assert states[0][2] != states[1][2]


def buggy_and_clean(name: str) -> tuple[list[Step], list[Step]]:
    bug = bug_catalog.load(name)
    return train(bug.NPROC, *bug.FLAGS, "--bug", name), train(bug.NPROC, *bug.FLAGS)


@pytest.mark.matrix
def test_t1_changes_the_loss_of_the_first_step_a_little() -> None:
    buggy, clean = buggy_and_clean("T1")
    assert buggy[0].loss != pytest.approx(clean[0].loss, rel=1e-4)
    assert buggy[0].loss == pytest.approx(clean[0].loss, rel=1e-2)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["T3", "T4"])
def test_wrong_gradient_scale_doubles_the_norm_and_hides_from_the_loss(name: str) -> None:
    buggy, clean = buggy_and_clean(name)
    assert buggy[0].loss == clean[0].loss
    # A power of two: exact.
    assert buggy[0].norm == pytest.approx(2 * clean[0].norm, rel=1e-8)
    assert buggy[-1].loss == pytest.approx(clean[-1].loss, rel=LATER_STEPS)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["T10", "T11", "T12"])
def test_backward_bug_leaves_the_first_loss_and_changes_what_follows(name: str) -> None:
    buggy, clean = buggy_and_clean(name)
    assert buggy[0].loss == clean[0].loss
    assert buggy[0].norm < 0.95 * clean[0].norm
    assert buggy[1].loss != pytest.approx(clean[1].loss, rel=LATER_STEPS)


@pytest.mark.matrix
@pytest.mark.parametrize("name", bug_catalog.names())
def test_bug_works_in_bf16_too(name: str) -> None:
    bug = bug_catalog.load(name)
    buggy = train(bug.NPROC, *bug.FLAGS, "--bf16", "--bug", name)
    clean = train(bug.NPROC, *bug.FLAGS, "--bf16")
    assert buggy[0].norm != pytest.approx(clean[0].norm, rel=5e-2)


@pytest.mark.parametrize("name", bug_catalog.names())
def test_bug_states_what_must_be_said_of_it(name: str) -> None:
    bug = bug_catalog.load(name)
    assert bug.__doc__ and bug.__doc__.startswith(f"{bug.ID}: ")
    assert name.startswith(f"{bug.ID.lower()}_")
    assert bug.NPROC >= 2
    assert all(re.compile(pattern) for pattern in bug.EXPECT["fqn"])
    assert bug.EXPECT["direction"] in ("forward", "backward", "update")
    assert bug.EXPECT["stage"] in ("input", "compute", "communication", "optimizer")
    assert set(bug.EXPECT["classes"]) <= set("KPRSXWMGLNZD")
    assert f"| {bug.ID} |" in (ZOO / "README.md").read_text()


def test_unknown_bug_is_refused_with_the_list_of_known_ones() -> None:
    with pytest.raises(SystemExit, match="t1_embedding_mask"):
        bug_catalog.load("t999")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("processes", "flags"),
    [(2, ("--tp", "2")), (2, SEQUENCE_PARALLEL), (2, ())],
    ids=["TP2", "TP2+SP", "DP2"],
)
def test_own_loop_trains_like_one_process(processes: int, flags: tuple[str, ...]) -> None:
    assert_equal_but_for_round_off(
        steps_of(processes, "own_loop.py", *flags), steps_of(0, "own_loop.py")
    )


@pytest.mark.matrix
def test_own_loop_runs_unequal_stages_and_evaluates() -> None:
    output = output_of(2, "own_loop.py", "--pp", "2", "--evaluate")
    assert len(re.findall(r"^iteration \d: loss \S+, norm \S+, evaluation \S+$", output, re.M)) == 3


needs_ttrace = pytest.mark.skipif(
    importlib.util.find_spec("ttrace") is None, reason="the toys import ttrace"
)


@pytest.mark.matrix
@needs_ttrace
def test_ddp_toy_with_one_rank_equals_the_plain_process() -> None:
    assert steps_of(1, "ddp_toy.py") == steps_of(0, "ddp_toy.py")


@pytest.mark.matrix
@needs_ttrace
def test_ddp_toy_ranks_draw_their_own_data() -> None:
    two, one = steps_of(2, "ddp_toy.py"), steps_of(0, "ddp_toy.py")
    assert two[0].loss != pytest.approx(one[0].loss, rel=1e-3)


@pytest.mark.matrix
@needs_ttrace
@pytest.mark.parametrize("flags", [(), ("--sp",)], ids=["TP2", "TP2+SP"])
def test_tensor_parallel_toy_trains_like_one_process(flags: tuple[str, ...]) -> None:
    two, one = (
        steps_of(count, "tensor_parallel_toy.py", *extra) for count, extra in ((2, flags), (0, ()))
    )
    for step, expected in zip(two, one, strict=True):
        assert step.loss == pytest.approx(expected.loss, rel=LATER_STEPS)
