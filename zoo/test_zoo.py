"""The trainer is right without a bug, and each bug does what it is said to do."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ZOO = Path(__file__).resolve().parent
sys.path.insert(0, str(ZOO))

import bug_catalog
from gpt.options import parse_arguments
from launch_ranks import launcher

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

CONTROLS = [name for name in bug_catalog.names() if bug_catalog.is_control(bug_catalog.load(name))]


class Step(NamedTuple):
    loss: float
    norm: float


@functools.cache
def output_of(processes: int, script: str, *flags: str) -> str:
    """Standard output of a run; each distinct run happens once."""
    return printed_by(launcher(processes), script, *flags)


def printed_by(command: list[str], script: str, *flags: str) -> str:
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
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    printed = printed_by([*torchrun, "--nproc-per-node", "1"], "train_gpt.py")
    assert printed == output_of(0, "train_gpt.py")


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


# Features of the model that both runs have, where a topology could break them.
FEATURES = {
    "window CP2": (2, ("--cp", "2"), ("--window", "8", "--window-skip", "3")),
    "norms of heads": (2, ("--tp", "2"), ("--qk-layernorm",)),
    "frozen": (2, ("--tp", "2"), ("--freeze", "linear_fc1")),
    "learned positions": (2, SEQUENCE_PARALLEL, ("--positions", "learned")),
    "recompute by two": (2, SEQUENCE_PARALLEL, ("--recompute", "--recompute-layers", "2")),
    "latent attention": (
        2,
        ("--tp", "2", "--fix", "latent_keys_summed,latent_norm_once"),
        ("--mla", "--qk-layernorm"),
    ),
    "latent attention SP": (
        2,
        (*SEQUENCE_PARALLEL, "--fix", "latent_keys_summed"),
        ("--mla", "--query-rank", "0"),
    ),
    "duplicated projections": (2, SEQUENCE_PARALLEL, ("--mla", "--linears", "te")),
    "small weights": (2, ("--tp", "2"), ("--init-std", "0.002")),
}


@pytest.mark.matrix
@pytest.mark.parametrize("feature", FEATURES)
def test_feature_trains_like_one_process(feature: str) -> None:
    processes, topology, flags = FEATURES[feature]
    assert_equal_but_for_round_off(train(processes, *topology, *flags), train(0, *flags))


# Ranks that hold other layers or experts than a single process, in one seed by names. One case of
# each mechanism: virtual stages, both overlaps, both dispatchers, an expert cut in two, several
# experts on a rank.
OVERLAP = ("--distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather")
EXPERTS = ("--experts", "4")
BY_NAME = {
    "VPP2": (2, ("--pp", "2", "--vpp", "2"), ("--weights-by-name",)),
    "DP2 overlap": (2, (*OVERLAP, "--bucket-size", "20000"), ("--weights-by-name",)),
    "EP2": (2, ("--ep", "2"), (*EXPERTS, "--shared-expert-ffn", "64", "--expert-bias")),
    "TP2+SP ETP2": (2, (*SEQUENCE_PARALLEL, "--etp", "2"), (*EXPERTS, "--aux-loss", "aux_loss")),
    "further tokens": (2, ("--pp", "2"), ("--mtp", "1", "--weights-by-name")),
    "EP2 allgather": (2, ("--ep", "2", "--dispatcher", "allgather"), EXPERTS),
}


@pytest.mark.matrix
@pytest.mark.parametrize("topology", BY_NAME)
def test_ranks_with_other_parts_train_like_one_process(topology: str) -> None:
    processes, flags, shared = BY_NAME[topology]
    assert_equal_but_for_round_off(train(processes, *flags, *shared), train(0, *shared))


@pytest.mark.matrix
def test_virtual_stages_with_data_parallel_overlap_train_like_one_process() -> None:
    flags = ("--pp", "2", "--vpp", "2", *OVERLAP)
    assert_equal_but_for_round_off(
        train(4, *flags, "--weights-by-name"), train(0, "--weights-by-name")
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--grouped-gemm",), "exist for GPUs only"),
        (("--vpp", "2"), "needs --pp"),
        (("--overlap-param-gather",), "needs --overlap-grad-reduce"),
        (("--recompute-modules", "mlp"), "never ends"),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["train_gpt.py", *flags])
    with pytest.raises(SystemExit, match=words):
        parse_arguments("")


@pytest.mark.matrix
def test_recomputing_two_layers_at_once_changes_nothing() -> None:
    assert train(0, "--recompute", "--recompute-layers", "2") == train(0)


@pytest.mark.matrix
def test_window_and_the_layers_that_skip_it_change_the_loss() -> None:
    runs = [(), ("--window", "8"), ("--window", "8", "--window-skip", "3")]
    assert len({train(0, *flags)[0].loss for flags in runs}) == 3


@pytest.mark.matrix
def test_frozen_modules_are_not_trained() -> None:
    assert train(0, "--freeze", "linear_fc1")[0].loss == train(0)[0].loss
    assert train(0, "--freeze", "linear_fc1")[1].loss != train(0)[1].loss


@pytest.mark.matrix
def test_freezing_what_is_not_there_is_refused() -> None:
    with pytest.raises(AssertionError, match="no module is called 'nothing'"):
        output_of(0, "train_gpt.py", "--freeze", "nothing")


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
@pytest.mark.parametrize("name", ["T2", "T7", "T9", "MG21", "M7452-6"])
def test_forward_bug_moves_the_first_loss_a_little(name: str) -> None:
    buggy, clean = buggy_and_clean(name)
    assert buggy[0].loss != pytest.approx(clean[0].loss, rel=FIRST_STEP)
    assert buggy[0].loss == pytest.approx(clean[0].loss, rel=1e-2)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["DO1", "DO2"])
def test_wrong_masks_move_the_loss_as_other_masks_do(name: str) -> None:
    buggy, clean = buggy_and_clean(name)
    assert buggy[0].loss != pytest.approx(clean[0].loss, rel=FIRST_STEP)
    assert buggy[0].loss == pytest.approx(clean[0].loss, rel=0.02)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "name", ["T5", "T6", "T13", "MG8", "MG11", "MG17", "MG25", "M7452-11", "OT8", "HF1"]
)
def test_gradient_bug_leaves_the_first_loss_and_moves_the_norm(name: str) -> None:
    buggy, clean = buggy_and_clean(name)
    assert buggy[0].loss == clean[0].loss
    # T13: eleven millionths. The run is the same but for the bug, so that no digit is round-off.
    assert buggy[0].norm != pytest.approx(clean[0].norm, rel=FIRST_STEP)


@pytest.mark.matrix
def test_parameters_that_were_not_gathered_are_used_in_the_second_step() -> None:
    buggy, clean = buggy_and_clean("T8")
    assert buggy[0] == clean[0]
    assert buggy[1].loss > 1.001 * clean[1].loss


@pytest.mark.matrix
def test_a_layers_wrong_number_cancels_out_but_for_round_off() -> None:
    assert_equal_but_for_round_off(*buggy_and_clean("MG18"))


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "first_loss"),
    # One of a dispatcher, of an expert's buffer, of the optimizer and of virtual stages.
    [("PL4", True), ("PL12", False), ("PL16", False), ("PL21", True)],
)
def test_planted_fault_moves_a_loss_a_little(name: str, first_loss: bool) -> None:
    buggy, clean = buggy_and_clean(name)
    assert (buggy[0].loss != clean[0].loss) == first_loss
    assert buggy[1].loss != clean[1].loss
    assert buggy[1].loss == pytest.approx(clean[1].loss, rel=0.01)


@pytest.mark.matrix
def test_leftovers_in_the_gradient_buffer_begin_with_the_second_step() -> None:
    buggy, clean = buggy_and_clean("MG22")
    assert buggy[0] == clean[0]
    assert buggy[1].loss == clean[1].loss
    assert buggy[1].norm > 1.1 * clean[1].norm


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [(), ("--bf16",)], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", CONTROLS)
def test_control_changes_nothing(name: str, dtype: tuple[str, ...]) -> None:
    bug = bug_catalog.load(name)
    clean = output_of(bug.NPROC, "train_gpt.py", *bug.FLAGS, *dtype)
    assert output_of(bug.NPROC, "train_gpt.py", *bug.FLAGS, *dtype, "--bug", name) == clean


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name in bug_catalog.names() if name not in CONTROLS])
def test_bug_works_in_bf16_too(name: str) -> None:
    bug = bug_catalog.load(name)
    buggy = train(bug.NPROC, *bug.FLAGS, "--bf16", "--bug", name)
    clean = train(bug.NPROC, *bug.FLAGS, "--bf16")
    assert any(
        step.norm != pytest.approx(expected.norm, rel=FIRST_STEP)
        for step, expected in zip(buggy, clean, strict=True)
    )


@pytest.mark.parametrize("name", [*bug_catalog.names(), *bug_catalog.planted()])
def test_bug_states_what_must_be_said_of_it(name: str) -> None:
    bug = bug_catalog.load(name)
    assert bug.__doc__ and bug.__doc__.startswith(f"{bug.ID}: ")
    assert bug_catalog.bug_id(name) == bug.ID
    assert bug.NPROC >= 2
    shared, own = bug_catalog.reference_flags(bug), bug_catalog.own_flags(bug)
    assert [*own, *shared] == bug.FLAGS
    assert not {"--tp", "--cp", "--pp", "--sp", "--vpp", "--ep", "--etp"} & set(shared)
    assert f"| {bug.ID} |" in (ZOO / "README.md").read_text()
    if bug_catalog.is_control(bug):
        assert bug.EXPECT == {"clean": True}
        return
    assert all(re.compile(pattern) for pattern in bug.EXPECT["fqn"])
    assert bug.EXPECT["direction"] in ("forward", "backward", "update")
    assert bug.EXPECT["stage"] in ("input", "compute", "communication", "optimizer")
    # Of a planted fault it may be that nothing recorded tells its class.
    assert bug.EXPECT["classes"] or name in bug_catalog.planted()
    assert set(bug.EXPECT["classes"]) <= set("KPRSXWMGLNZDHUC")


def test_bugs_are_found_by_name_and_by_id_and_the_papers_come_first() -> None:
    names = bug_catalog.names()
    assert len(set(names)) == len(names) == len(list((ZOO / "bugs").glob("[!_]*.py")))
    assert names[:2] == ["t1_embedding_mask", "t2_recompute_chunk_input"]
    others = [bug_catalog.bug_id(name) for name in names if not name.startswith("t")]
    families = "MG1 MG8 MG11 MG17 MG18 MG21 MG22 MG25 M7452-6 M7452-11 OT8 HF1 DS1 DO1 DO2"
    assert others == families.split()
    for name in (*names, *bug_catalog.planted()):
        assert bug_catalog.load(bug_catalog.bug_id(name).lower()).ID == bug_catalog.load(name).ID


def result_of(verdict: str, *fqns: str) -> dict[str, Any]:
    rest = {"direction": "forward", "stage": "compute", "classes": [{"class": "W"}]}
    return {"verdict": verdict, "culprits": [{"fqn": fqn, **rest} for fqn in fqns]}


def test_a_control_must_be_within_and_name_nobody() -> None:
    expected = {"clean": True}
    assert bug_catalog.disagreements(result_of("within"), expected) == []
    assert bug_catalog.disagreements(result_of("inconclusive"), expected)
    assert bug_catalog.disagreements(result_of("within", "decoder"), expected)


def test_a_bug_must_be_placed_and_named() -> None:
    expected = {"fqn": ["a"], "direction": "forward", "stage": "compute", "classes": ["W"]}
    assert bug_catalog.disagreements(result_of("diverged", "a"), expected) == []
    assert bug_catalog.disagreements(result_of("diverged", "b"), expected)
    # Nobody else may be blamed but those who are known to have it too.
    for found in (("a", "b"), ("b", "a")):
        assert bug_catalog.disagreements(result_of("diverged", *found), expected)
    shared = {**expected, "affected": ["b"]}
    assert bug_catalog.disagreements(result_of("diverged", "a", "b"), shared) == []
    assert bug_catalog.disagreements(result_of("diverged", "b", "a"), shared)
    assert bug_catalog.disagreements(result_of("diverged"), expected)
    for wrong in ({"direction": "backward"}, {"stage": "communication"}, {"classes": ["K"]}):
        assert bug_catalog.disagreements(result_of("diverged", "a"), {**expected, **wrong})
    assert bug_catalog.disagreements(result_of("diverged", "a"), {**expected, "iteration": 1})
    # Where no class is expected, none may be named.
    unnamed = result_of("diverged", "a")
    unnamed["culprits"][0]["classes"] = []
    assert bug_catalog.disagreements(unnamed, expected)
    assert bug_catalog.disagreements(unnamed, {**expected, "classes": []}) == []
    assert bug_catalog.disagreements(result_of("diverged", "a"), {**expected, "classes": []})


def test_each_of_several_bugs_must_be_found_in_any_order() -> None:
    a = {"fqn": ["a"], "direction": "forward", "stage": "compute", "classes": ["W"]}
    b = {**a, "fqn": ["b"]}
    assert bug_catalog.disagreements(result_of("diverged", "b", "a"), a, b) == []
    assert bug_catalog.disagreements(result_of("diverged", "b"), a, b)
    assert bug_catalog.disagreements(result_of("diverged", "b", "a", "c"), a, b)
    assert bug_catalog.disagreements(result_of("diverged", "b", "a"), a, {**b, "classes": ["K"]})


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
