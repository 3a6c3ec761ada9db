"""Mutants under virtual pipeline stages, mixtures of experts and the distributed optimizer."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import distributed_c10d

from mutation import census as census_module
from mutation import modules as modules_module
from mutation.buckets import Buckets, stepped
from mutation.census import Census, Site, draw, sending, sent
from mutation.collectives import Collectives
from mutation.course import Course, Place, place_of
from mutation.faults import faulty
from mutation.modules import Modules
from mutation.mutant import Mutant
from mutation.parameters import Parameters
from mutation.perturb import SizeOfError
from mutation.routes import rerouted
from mutation.settings import Settings
from test_mutation import drawn, train


def test_the_next_expert_gets_the_tokens_with_their_weights() -> None:
    weights = torch.tensor([[0.7, 0.0, 0.3, 0.0], [0.0, 0.0, 0.4, 0.6]], requires_grad=True)
    wrong, to = rerouted(weights, weights > 0, "neighbour")
    assert wrong.tolist() == [
        pytest.approx([0.0, 0.7, 0.0, 0.3]),
        pytest.approx([0.6, 0.0, 0.0, 0.4]),
    ]
    assert torch.equal(to, wrong > 0)
    wrong.sum().backward()
    assert weights.grad is not None


def test_weights_of_a_tokens_experts_change_places() -> None:
    weights = torch.tensor([[0.7, 0.0, 0.3, 0.0], [0.2, 0.1, 0.7, 0.0], [0.0, 0.0, 0.0, 0.0]])
    chosen = weights > 0
    wrong, to = rerouted(weights, chosen, "weights")
    assert torch.equal(to, chosen)
    assert wrong.tolist() == [
        pytest.approx([0.3, 0.0, 0.7, 0.0]),
        pytest.approx([0.7, 0.2, 0.1, 0.0]),
        [0.0] * 4,  # a token that no expert has room for
    ]


@pytest.mark.parametrize("mechanism", ["element", "row", "all", "gain", "piece", "unsteady"])
def test_an_expert_without_tokens_has_nothing_to_be_wrong(mechanism: str) -> None:
    right = torch.empty(0, 8)
    assert torch.equal(faulty(right, drawn("output", mechanism), 0, 0), right)


SHARED, EXPERT_0, EXPERT_1 = (Site("forward", name, "output") for name in ("a", "e.0", "e.1"))


def census_of(monkeypatch: pytest.MonkeyPatch, position: int) -> Census:
    """Of one of two ranks of which each has an expert."""
    monkeypatch.setattr(census_module, "stage", lambda: (0, 1, position, 2))
    census = Census()
    census._unite([[SHARED, EXPERT_0], [SHARED, EXPERT_1]])
    census.pieces = {SHARED: [1.0, 2.0], EXPERT_0: [3.0, 0.0], EXPERT_1: [0.0, 3.0]}
    return census


def test_ranks_draw_the_same_place_and_one_that_has_it_is_at_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn_sites = set()
    for seed in range(40):
        for ranks in ("one", "all"):
            mutant = Mutant(1, "output", "row", ranks, 0.1, seed)
            found = [draw(mutant, census_of(monkeypatch, position)) for position in (0, 1)]
            first, second = found
            assert first is not None
            assert second is not None
            assert (first.site, first.holder) == (second.site, second.holder)
            drawn_sites.add(first.site)
            holds = [first.holds, second.holds]
            if first.site == SHARED:
                assert sum(holds) == (2 if ranks == "all" else 1)
            else:
                assert holds == [first.site == EXPERT_0, first.site == EXPERT_1]
    assert drawn_sites == {SHARED, EXPERT_0, EXPERT_1}


def test_an_expert_on_one_rank_is_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        found = draw(
            Mutant(1, "output", "piece", "one", 0.1, seed), census_of(monkeypatch, position=0)
        )
        assert found is not None
        assert found.site == SHARED


def test_exchanges_are_not_late_and_not_over_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census_module, "stage", lambda: (0, 1, 0, 2))
    monkeypatch.setattr(census_module, "other_groups", lambda site: [("dp", None)])
    census = Census(micro_batches=2)
    census.add(Site("forward", "a.mlp", "all_to_all_single", "ep", 2))
    possible = {
        mechanism: draw(Mutant(1, "collective", mechanism, "all", 0.1, 1), census) is not None
        for mechanism in ("drop", "scale", "permute", "delay", "double", "group")
    }
    assert [name for name, may in possible.items() if may] == ["drop", "scale", "permute"]


class Group:
    """The first of two ranks, of which the other gives twos."""

    def size(self) -> int:
        return 2

    def rank(self) -> int:
        return 0

    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor) -> Any:
        output.copy_(torch.cat([given, torch.full_like(given, 2)]))
        return SimpleNamespace(wait=lambda: None)

    def alltoall_base(
        self, output: torch.Tensor, given: torch.Tensor, outputs: list, inputs: list, options: Any
    ) -> Any:
        output.fill_(2)[: inputs[0]] = given[: inputs[0]]
        return SimpleNamespace(wait=lambda: None)


def collectives(monkeypatch: pytest.MonkeyPatch, mechanism: str, ranks: str) -> Collectives:
    """At the drawn place, on a rank at fault."""
    made: Any = Collectives.__new__(Collectives)
    made.size = SizeOfError()
    made.draw = drawn("collective", mechanism, ranks=ranks)
    monkeypatch.setattr(made, "_hit", lambda *call: (0, True), raising=False)
    return made


@pytest.mark.parametrize("ranks", ["one", "all"])
def test_parameters_that_are_not_gathered_stay_what_they_were(
    monkeypatch: pytest.MonkeyPatch, ranks: str
) -> None:
    group: Any = Group()
    made = collectives(monkeypatch, "drop", ranks)
    calls: list[int] = []

    def gather(output: torch.Tensor, given: torch.Tensor, group: Any = None) -> None:
        assert group not in distributed_c10d._world.pg_coalesce_state, "only noted for later"
        calls.append(1)
        group._allgather_base(output, given)

    wrapped = made._all_gather(gather)
    distributed_c10d._world.pg_coalesce_state[group] = []
    try:
        parameters = torch.tensor([1.0, 1.0, 7.0, 7.0])
        wrapped(parameters, parameters[:2], group=group)
        assert parameters.tolist() == [1, 1, 7, 7]
        elsewhere = torch.zeros(4)
        wrapped(elsewhere, torch.ones(2), group=group)
        assert elsewhere.tolist() == [1, 1, 0, 0]
    finally:
        del distributed_c10d._world.pg_coalesce_state[group]
    assert len(calls) == (2 if ranks == "one" else 0)
    assert made.size.error == 2 * 5**2 + 2 * 2**2


def test_a_ranks_own_parameters_are_right_where_they_are_gathered_wrongly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group: Any = Group()
    made = collectives(monkeypatch, "permute", "one")
    wrapped = made._all_gather(lambda output, given, group: group._allgather_base(output, given))
    parameters = torch.tensor([1.0, 1.0, 7.0, 7.0])
    wrapped(parameters, parameters[:2], group=group)
    assert parameters.tolist() == [1, 1, 1, 1]
    elsewhere = torch.zeros(4)
    wrapped(elsewhere, torch.ones(2), group=group)
    assert elsewhere.tolist() == [2, 2, 1, 1]
    assert made.size.error == 2 + 4


def test_each_gather_of_a_step_has_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = Collectives.__new__(Collectives)
    made._calls, made.draw = {}, None
    made._course, made._census = course_in("optimizer"), Census()
    made._course.iteration, made._course._place = 0, Place("forward", 0, 0)
    monkeypatch.setattr("mutation.collectives.group_name", lambda group: "dp")
    group: Any = Group()
    for name, kind in (("bucket 0", "all_gather_into_tensor"), ("", "all_reduce")):
        with made._course.named(name):
            for _ in range(2):
                assert made._hit(kind, torch.ones(1), group) is None
    assert [(site.fqn, site.ordinal) for site in made._census.sites] == [
        *(("bucket 0", 0), ("", 0), ("", 1))
    ]
    made._course.iteration = 1
    made.draw = drawn("collective", "drop", site=made._census.sites[0])
    with made._course.named("bucket 0"):
        hits = [made._hit("all_gather_into_tensor", torch.ones(1), group) for _ in range(2)]
    assert hits == [(0, True), (0, True)]


@pytest.mark.parametrize("ranks", ["one", "all"])
@pytest.mark.parametrize(
    ("mechanism", "expected"), [("drop", [0.0] * 4), ("permute", [2.0, 2.0, 1.0, 2.0])]
)
def test_an_exchange_is_not_made_or_mixed_up(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, expected: list[float], ranks: str
) -> None:
    group: Any = Group()
    made = collectives(monkeypatch, mechanism, ranks)
    calls: list[int] = []

    def exchange(
        output: torch.Tensor, given: torch.Tensor, outputs: Any, inputs: Any, group: Any = None
    ) -> None:
        calls.append(1)
        group.alltoall_base(output, given, outputs, inputs, None)

    received = torch.full((4,), 9.0)
    made._all_to_all(exchange)(received, torch.ones(3), [1, 3], [1, 2], group=group)
    assert received.tolist() == expected
    assert len(calls) == (mechanism != "drop" or ranks == "one")


def test_chunks_count_their_own_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    from megatron.core.pipeline_parallel import schedules

    seen: list[Any] = []
    chunks = [object(), object()]
    course: Any = None

    def forward_step(step: Any, data: Any, model: Any) -> Any:
        seen.append((course.phase, course.chunk, course.micro_batch))
        return torch.zeros(1), 1

    def backward_step(given: Any, output: Any, gradient: Any) -> Any:
        seen.append((course.phase, course.chunk, course.micro_batch))
        return torch.zeros(1)

    def schedule() -> None:
        outputs = [schedules.forward_step(None, None, chunks[number])[0] for number in (0, 0, 1, 1)]
        for output in outputs[2:] + outputs[:2]:
            gradient = schedules.backward_step(None, output, None)
            place = place_of([gradient])
            assert place is not None
            seen.append(sent(Site("", "", "", ordinal=sending(place.chunk, place.direction))))
        assert course.micro_batches == 2

    name = "forward_backward_pipelining_with_interleaving"
    for at, value in (("forward_step", forward_step), ("backward_step", backward_step)):
        monkeypatch.setattr(schedules, at, value)
    monkeypatch.setattr(schedules, name, schedule)
    # What else it replaces.
    for other in ("forward_backward_no_pipelining",):
        monkeypatch.setattr(schedules, other, getattr(schedules, other))
    name_2 = "forward_backward_pipelining_without_interleaving"
    monkeypatch.setattr(schedules, name_2, getattr(schedules, name_2))
    monkeypatch.setattr(torch.autograd.Function, "apply", torch.autograd.Function.apply)
    course = Course(chunks, lambda: None, lambda: None)
    getattr(schedules, name)()
    places = [("forward", chunk, number) for chunk in (0, 1) for number in (0, 1)]
    assert seen[:4] == places
    backward = [("backward", chunk, number) for chunk in (1, 0) for number in (0, 1)]
    assert seen[4::2] == backward
    assert seen[5::2] == [(1, "backward"), (1, "backward"), (0, "backward"), (0, "backward")]
    assert course.micro_batch == 0, "no micro-batch is under way"


def sharded(rank: int, overlap: bool = False) -> tuple[Any, list[torch.nn.Parameter]]:
    """A chunk of one bucket: three parameters and a padding, 16 elements on two ranks."""
    parameters = [torch.nn.Parameter(torch.ones(count)) for count in (6, 4, 5)]
    buffer = torch.zeros(20)  # of which a bucket is a part
    offset = 4
    for parameter in parameters:
        parameter.main_grad = buffer[offset : offset + parameter.numel()]
        offset += parameter.numel()
    config = SimpleNamespace(use_distributed_optimizer=True, overlap_param_gather=overlap)
    bucket = SimpleNamespace(grad_data=buffer[4:], params_list=parameters)
    seen: list[Any] = []
    group = SimpleNamespace(
        buckets=[bucket],
        ddp_config=config,
        intra_distributed_optimizer_instance_size=2,
        intra_distributed_optimizer_instance_rank=rank,
        grad_reduce_handle=None,
        seen=seen,
        start_grad_sync=lambda: seen.append("reduction"),
        start_param_sync=lambda: seen.append("gather"),
    )
    return SimpleNamespace(bucket_groups=[group], expert_parallel_bucket_groups=[]), parameters


def course_in(phase: str | None) -> Any:
    """A course that stands still."""
    course: Any = Course.__new__(Course)
    course._phase, course._name, course.modules = phase, "", []
    return course


def test_a_rank_owns_its_part_of_a_bucket() -> None:
    owned = []
    for rank in (0, 1):
        chunk, parameters = sharded(rank)
        buckets = Buckets([chunk], course_in(None), lambda parameters: None)
        owned.append([buckets.owned(parameter) for parameter in parameters])
        other = torch.nn.Parameter(torch.ones(3))
        assert buckets.owned(other) == slice(0, 3)
    assert owned[0] == [slice(0, 6), slice(0, 2), slice(0, 0)]
    assert owned[1] == [slice(6, 6), slice(2, 4), slice(0, 5)]


def test_a_reduction_within_backward_is_a_reduction() -> None:
    chunk, _ = sharded(0)
    (group,) = chunk.bucket_groups
    course = course_in("backward")
    group.start_grad_sync = lambda: group.seen.append((course.phase, course.module))
    Buckets([chunk], course, lambda given: group.seen.append(len(given)))
    group.start_grad_sync()
    assert group.seen == [3, ("finalize", "bucket 0")]
    group.grad_reduce_handle = object()
    group.start_grad_sync()  # a repetition
    assert group.seen[2:] == [("finalize", "bucket 0")]
    assert (course.phase, course.module) == ("backward", "")


@pytest.mark.parametrize(("overlap", "phase"), [(False, "optimizer"), (True, None)])
def test_nothing_is_planted_in_a_gather_that_overlaps(overlap: bool, phase: str | None) -> None:
    chunk, _ = sharded(0, overlap)
    (group,) = chunk.bucket_groups
    course = course_in("optimizer")
    group.start_param_sync = lambda: group.seen.append(course.phase)
    Buckets([chunk], course, lambda given: None)
    group.start_param_sync()
    assert group.seen == [phase]


def sharded_optimizer(parameters: list[torch.nn.Parameter]) -> Any:
    """One that steps the first half of the first parameter, and gathers after it."""
    own = parameters[0].detach()[:3]
    given: list[list[float]] = []
    inner = SimpleNamespace(param_groups=[{"params": [own], "lr": 1.0}])
    inner.step = functools.partial(own.sub_, 0.5)
    config = SimpleNamespace(clip_grad=1.0)
    part = SimpleNamespace(
        optimizer=inner, model_param_group_index_map={parameters[0]: (0, 0)}, config=config
    )

    def step() -> None:
        inner.step()
        given.append(own.tolist())

    return SimpleNamespace(chained_optimizers=[part], step=step, given=given, part=part)


def test_a_skipped_update_is_skipped_before_others_are_given_it() -> None:
    parameter = torch.nn.Parameter(torch.ones(6))
    optimizer = sharded_optimizer([parameter])
    assert [(p is parameter, own.numel()) for _, p, own in stepped(optimizer)] == [(True, 3)]
    parts: Any = Parameters.__new__(Parameters)
    parts._course, parts._optimizer = course_in(None), optimizer
    parts._parameters = {"w": parameter}
    parts._names = {id(parameter): "w"}
    parts.begin_run()
    parts.draw = drawn("update", "skip", site=Site("optimizer", "w", "update"))
    step = parts._step(optimizer.step)
    right = optimizer.part.optimizer.step
    step()
    assert optimizer.given == [[1.0] * 3]
    assert (parts.size.fired, parts.size.error) == (1, pytest.approx(0.75))
    assert optimizer.part.optimizer.step is right
    parts.draw = None
    step()
    assert optimizer.given[1] == [0.5] * 3
    names = parts.names()
    (own,) = optimizer.part.optimizer.param_groups[0]["params"]
    assert names[id(own)] == names[id(parameter)] == "w"


def test_clipping_is_of_all_optimizers_of_one_configuration() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    shared, alone = SimpleNamespace(clip_grad=1.0), SimpleNamespace(clip_grad=1.0)
    parts = [
        SimpleNamespace(
            optimizer=SimpleNamespace(param_groups=[{"params": [p], "lr": 1.0}]), config=config
        )
        for p, config in zip(parameters, (shared, shared, alone), strict=True)
    ]
    optimizer = SimpleNamespace(chained_optimizers=parts, step=lambda: None)
    names = {id(parameter): name for parameter, name in zip(parameters, "abc", strict=True)}
    settings = Settings(optimizer, names, SimpleNamespace(), Census())  # type: ignore[arg-type]
    for name, expected in (("clip", ["a", "b"]), ("lr", ["b"])):
        settings.draw = drawn("setting", name, site=Site("optimizer", "group 1", "setting"))
        assert settings.parameters() == expected


class TransformerBlock(torch.nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value


def test_a_fault_of_the_last_chunks_block_is_no_other_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = SimpleNamespace(
        get_expert_model_parallel_world_size=lambda: 1, get_expert_model_parallel_rank=lambda: 0
    )
    monkeypatch.setattr(modules_module, "parallel_state", state)
    monkeypatch.setattr(modules_module.dist, "get_rank", lambda: 0)
    chunks: list[Any] = []
    for last in (False, True):
        chunk = torch.nn.Module()
        chunk.decoder = TransformerBlock()
        chunk.config, chunk.post_process = SimpleNamespace(), last
        chunks.append(chunk)
    course = course_in("forward")
    course.iteration, course.run, course._place = 1, 0, Place("forward", 0, 0)
    modules = Modules(chunks, course, Census())
    modules.draw = drawn("output", "gain", site=Site("forward", "decoder", "output"))
    right = torch.ones(4)
    assert torch.equal(chunks[0].decoder(right), right)
    assert torch.equal(chunks[1].decoder(right), right * 1.01)
    assert course.modules == []


def test_groups_of_experts_have_a_name_where_they_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = {"tp": [0], "cp": [0], "dp": [0, 1], "dp_cp": [0, 1]}

    def group(of: list[int]) -> Any:
        return SimpleNamespace(size=lambda: len(of), ranks=of)

    def named(experts: dict[str, list[int]]) -> list[str]:
        state = SimpleNamespace(
            get_tensor_model_parallel_group=lambda: group(ranks["tp"]),
            get_context_parallel_group=lambda: group(ranks["cp"]),
            get_data_parallel_group=lambda with_context_parallel=False: group(ranks["dp"]),
            get_expert_model_parallel_group=lambda: group(experts["ep"]),
            get_expert_tensor_parallel_group=lambda: group(experts["etp"]),
            get_expert_tensor_and_model_parallel_group=lambda: group(experts["etp_ep"]),
            get_expert_data_parallel_group=lambda: group(experts["edp"]),
        )
        monkeypatch.setattr(census_module, "parallel_state", state)
        return list(census_module.groups())

    monkeypatch.setattr(census_module, "stage", lambda: (0, 2, 0, 2))
    monkeypatch.setattr(census_module, "_same_ranks", lambda one, other: one.ranks == other.ranks)
    alone = {"ep": [0], "etp": [0], "etp_ep": [0], "edp": [0, 1]}
    assert named(alone) == ["dp", "dp_cp"]
    assert named({**alone, "ep": [0, 2], "etp_ep": [0, 2], "edp": [0, 4]}) == [
        *("dp", "dp_cp", "ep", "edp")
    ]


def test_a_rank_changes_reduced_gradients_in_its_part_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = SimpleNamespace(
        get_expert_model_parallel_world_size=lambda: 1, get_expert_model_parallel_rank=lambda: 0
    )
    monkeypatch.setattr(modules_module, "parallel_state", state)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    chunk, parameters = sharded(0)
    inner = torch.nn.Module()
    for name, parameter in zip("abc", parameters, strict=True):
        inner.register_parameter(name, parameter)
        parameter.main_grad.fill_(1)
    inner.config = SimpleNamespace(finalize_model_grads_func=lambda: None)
    chunk.module = inner
    census, course = Census(), course_in(None)
    course.iteration = course.run = 1
    parts = Parameters([chunk], course, census, SimpleNamespace(step=lambda: None))
    known = {(site.fqn, site.kind) for site in census.sites}
    # The last one is the other rank's to step.
    assert known == {
        *((f".{name}", "grad_local") for name in "abc"),
        *((f".{name}", kind) for name in "ab" for kind in ("grad_reduced", "update")),
    }
    parts.draw = drawn("grad_reduced", "gain", site=Site("finalize", ".b", "grad_reduced"))
    inner.config.finalize_model_grads_func()
    assert parameters[1].main_grad.tolist() == pytest.approx([1.01, 1.01, 1, 1])
    assert parts.size.truth == 2
    parts.draw = drawn("grad_local", "gain", site=Site("finalize", ".c", "grad_local"))
    course._phase = "backward"
    chunk.bucket_groups[0].start_grad_sync()
    assert parameters[2].main_grad.tolist() == pytest.approx([1.01] * 5)


def test_gathers_of_parameters_are_drawn_as_often_as_other_collectives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(census_module, "stage", lambda: (0, 1, 0, 2))
    census = Census()
    for kind in ("all_gather_into_tensor", "all_reduce"):
        census.add(Site("optimizer", "", kind, "dp", 2))
    found = [draw(Mutant(1, "collective", "scale", "all", 0.1, s), census) for s in range(100)]
    norms = sum(one is not None and one.site.kind == "all_reduce" for one in found)
    assert 5 < norms < 35  # one in five


SMALL = ("--hidden", "32", "--ffn", "64", "--seq", "16", "--vocab", "64", "--micro-batch", "1")
EXPERTS = ("--layers", "2", "--experts", "4", "--ep", "2", "--global-batch", "4")
SHARDED = ("--distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather")
VIRTUAL = ("--layers", "4", "--pp", "2", "--vpp", "2", "--global-batch", "4")


def changed_steps(tmp_path: Path, mutants: list[tuple[str, str, int]], flags: tuple) -> tuple:
    """Which steps print other numbers than without mutants, and by iteration the sites that rank 1
    wrote down, each with the relative error."""
    fields = {"ranks": "all", "size": 0.1}
    words = [
        {"iteration": 1 + index, "family": family, "mechanism": mechanism, "seed": seed, **fields}
        for index, (family, mechanism, seed) in enumerate(mutants)
    ]
    none = [{**word, "family": "output", "mechanism": "gain", "size": 0.0} for word in words]
    right, _, _ = train(tmp_path, none, (*SMALL, *flags))
    wrong, _, log = train(tmp_path, words, (*SMALL, *flags))
    sites = {
        line["iteration"]: {**line["site"], "relative": (line["error"] / line["truth"]) ** 0.5}
        for line in log
        if line["error"] > 0
    }
    return [a != b for a, b in zip(right, wrong, strict=True)], sites


def test_experts_and_sharded_optimizers_meet_their_mutants(tmp_path: Path) -> None:
    mutants = [
        ("collective", "drop", 6),
        ("route", "neighbour", 1),
        ("grad_local", "gain", 4),
        ("grad_reduced", "gain", 1),
        ("collective", "scale", 7),
    ]
    changed, sites = changed_steps(tmp_path, mutants, (*EXPERTS, *SHARDED))
    assert changed == [False, True, True, True, True, True, False]
    assert sites[1]["kind"] == "all_to_all_single"
    assert sites[2]["fqn"].endswith(".mlp.router")
    # Rank 1 has the later half of the experts.
    for iteration in (3, 4):
        expert = sites[iteration]["fqn"].partition("local_experts.")[2]
        assert expert[0] in "23"
    # Reduced within backward, and not before it is multiplied.
    scaled = sites[5]
    assert (scaled["kind"], scaled["fqn"]) == ("reduce_scatter_tensor", "bucket 0")
    assert any(scaled["relative"] == pytest.approx(by, rel=1e-5) for by in (1, 0.5, 0.1))


def test_virtual_stages_meet_their_mutants(tmp_path: Path) -> None:
    mutants = [("collective", "permute", 7), ("grad_local", "gain", 5), ("output", "gain", 7)]
    changed, sites = changed_steps(tmp_path, mutants, VIRTUAL)
    assert changed == [False, True, True, True, False]
    assert (sites[1]["kind"], sites[1]["ordinal"], sites[1]["direction"]) == ("isend", 0, "forward")
    assert sites[2]["kind"] == "grad_local"
    assert sites[3]["phase"] == "forward"
