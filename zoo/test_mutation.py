"""Mutants change what they say and nothing else; the words for them are checked."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launch_ranks import launcher
from mutation.census import Draw, Site
from mutation.faults import faulty
from mutation.masks import Masks, mask_seed
from mutation.mutant import Mutant, read_mutants
from mutation.perturb import FaultyGradient, SizeOfError, permuted, perturbed
from mutation.settings import Settings, changed

FIELDS = {
    "iteration": 1,
    "family": "output",
    "mechanism": "row",
    "ranks": "one",
    "size": 0.1,
    "seed": 1,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "drop"}, "no mutant is called output drop"),
        ({"family": "magic"}, "no mutant is called magic row"),
        ({"ranks": "some"}, "one or all"),
        ({"iteration": 0}, "iteration 0 is clean"),
        ({"mechanism": "piece", "ranks": "all"}, "a piece is one rank's"),
    ],
)
def test_words_without_meaning_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mutant(**{**FIELDS, **change})


def test_an_iteration_has_one_mutant(tmp_path: Path) -> None:
    path = tmp_path / "mutants.json"
    path.write_text(json.dumps([FIELDS, {**FIELDS, "iteration": 2}]))
    assert sorted(read_mutants(str(path))) == [1, 2]
    path.write_text(json.dumps([FIELDS, FIELDS]))
    with pytest.raises(ValueError, match="two mutants"):
        read_mutants(str(path))


@pytest.mark.parametrize(("extent", "hit"), [("element", 1), ("row", 8), ("all", 48)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_perturbation_hits_its_extent_and_always_the_same(
    extent: str, hit: int, dtype: torch.dtype
) -> None:
    tensor = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(3)).to(dtype)
    tensor = tensor.transpose(0, 1)
    before = tensor.clone()
    for seed in range(4):
        wrong = perturbed(tensor, extent, 0.5, random.Random(seed))
        assert torch.equal(tensor, before)
        assert wrong.dtype == dtype
        # Low precision swallows small changes of large values.
        assert hit - hit // 8 <= int((wrong != tensor).sum()) <= hit
        assert torch.equal(wrong, perturbed(tensor, extent, 0.5, random.Random(seed)))
        size = SizeOfError()
        size.add(wrong, tensor)
        assert size.fired == 1
        relative = (size.error / size.truth) ** 0.5
        assert relative == pytest.approx(0.5 * (hit / 48) ** 0.5, rel=0.7)


def test_a_module_may_write_into_the_input_whose_gradient_is_faulty() -> None:
    given = torch.ones(4, requires_grad=True)
    value = given * 1
    seen = FaultyGradient.apply(value, lambda gradient: 3 * gradient)
    seen.masked_fill_(torch.tensor([True, False, False, False]), 0)
    seen.sum().backward()
    assert torch.equal(value, torch.ones(4))
    assert given.grad is not None
    assert given.grad.tolist() == [0, 3, 3, 3]


def drawn(family: str, mechanism: str, holds: bool = True, **more: Any) -> Draw:
    """A mutant that has found a place."""
    fields = {"iteration": 1, "ranks": "one", "size": 0.01, "seed": 5}
    fields |= {name: more.pop(name) for name in list(more) if name in fields}
    mutant = Mutant(family=family, mechanism=mechanism, **fields)
    site = more.pop("site", Site("forward", "a", family))
    return Draw(mutant, site, holds, None, random.Random(5), **more)


def values() -> torch.Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gain_is_a_factor(dtype: torch.dtype) -> None:
    right = values().to(dtype)
    wrong = faulty(right, drawn("output", "gain"), run=0, rank=0)
    assert wrong.dtype == dtype
    assert torch.equal(wrong, (right.double() * 1.01).to(dtype))
    assert torch.equal(faulty(right, drawn("output", "gain", holds=False), 0, 0), right)


def test_a_piece_has_the_same_values_elsewhere() -> None:
    right = values()
    moved = [permuted(right, random.Random(seed)) for seed in range(6)]
    for wrong in moved:
        assert not torch.equal(wrong, right)
        assert torch.equal(wrong.flatten().sort().values, right.flatten().sort().values)
    slices = [all((row == right).all(1).any() for row in wrong) for wrong in moved]
    assert set(slices) == {True, False}
    wrong = faulty(right, drawn("output", "piece"), 0, 0)
    assert torch.equal(wrong, faulty(right, drawn("output", "piece"), 3, 1))
    assert torch.equal(faulty(right, drawn("output", "piece", holds=False), 0, 0), right)


def test_an_unsteady_fault_is_another_one_in_each_run_and_on_each_rank() -> None:
    right = values()
    for seed in range(4):  # whatever part is hit
        draw = drawn("grad_local", "unsteady", seed=seed)
        wrong = [
            faulty(right, draw, run, rank) for run, rank in itertools.product(range(3), (0, 1))
        ]
        for one, other in itertools.combinations(wrong, 2):
            assert not torch.equal(one, other)
        assert not any(torch.equal(each, right) for each in wrong)
        assert torch.equal(wrong[3], faulty(right, draw, 1, 1))


def test_a_fault_that_happens_once_is_not_in_reruns() -> None:
    right, draw = values(), drawn("grad_local", "once")
    assert not torch.equal(faulty(right, draw, 0, 0), right)
    assert all(torch.equal(faulty(right, draw, run, 0), right) for run in (1, 2, 5))


class Census:
    """That counts nothing but sites."""

    def __init__(self) -> None:
        self.sites: list[Site] = []

    def add(self, site: Site) -> None:
        self.sites.append(site)


def optimizer_of_two_groups(seen: list[Any]) -> Any:
    one, two = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))
    inner = torch.optim.AdamW([{"params": [one]}, {"params": [two], "weight_decay": 0.0}], lr=0.5)
    config = SimpleNamespace(clip_grad=1.0)

    def step() -> None:
        groups = [{k: v for k, v in g.items() if k != "params"} for g in inner.param_groups]
        seen.append((groups, config.clip_grad))

    part = SimpleNamespace(optimizer=inner, config=config)
    names = {id(one): "one", id(two): "two"}
    return SimpleNamespace(chained_optimizers=[part], step=step), names


@pytest.mark.parametrize("name", ["lr", "weight_decay", "betas", "eps", "clip"])
def test_a_setting_is_another_one_for_one_group_and_one_step(name: str) -> None:
    seen: list[Any] = []
    optimizer, names = optimizer_of_two_groups(seen)
    census: Any = Census()
    settings = Settings(optimizer, names, SimpleNamespace(), census)
    assert [site.fqn for site in census.sites] == ["group 0", "group 1"]
    optimizer.step()
    settings.draw = drawn("setting", name, size=1e-9, site=census.sites[1])
    optimizer.step()
    assert settings.parameters() == (["one", "two"] if name == "clip" else ["two"])
    assert settings.size.error > 0
    settings.draw = drawn("setting", name, holds=False, site=census.sites[1])
    settings.begin_run()
    optimizer.step()
    assert (settings.size.fired, settings.size.error) == (1, 0)
    right, wrong, after = seen
    assert after == right
    if name == "clip":
        assert wrong == (right[0], changed("clip", 1.0, 1e-9))
        return
    assert (wrong[0][0], wrong[1]) == (right[0][0], right[1])
    assert {k for k, v in wrong[0][1].items() if v != right[0][1][k]} == {name}


@pytest.mark.parametrize("size", [1e-10, 10.0])
def test_changed_settings_are_settings(size: float) -> None:
    for name, right in (("lr", 1e-3), ("weight_decay", 0.0), ("eps", 1e-8), ("clip", 1.0)):
        assert changed(name, right, size) > right
    first, second = changed("betas", (0.9, 0.999), size)
    assert 0 < first < 0.9
    assert second == 0.999


def masks_of(mechanism: str, position: int, **more: Any) -> dict[tuple[str, int], int | None]:
    """Seed of each dropout of two layers, by layer and micro-batch, in TP2 DP2."""
    group = more.pop("group", "")
    sites = {name: Site("forward", name, "mask", group) for name in ("a", "b")}
    draw = drawn("mask", mechanism, site=sites["a"], **more)
    hit = (draw.site, draw.partner)
    return {
        (name, mb): mask_seed(draw, site, mb, position, 2) if site in hit else None
        for name, site in sites.items()
        for mb in (0, 1)
    }


def test_masks_are_equal_where_the_fault_says_so_and_nowhere_else() -> None:
    # Positions 0 and 1 are tensor ranks of the same data, 2 and 3 of other data.
    of = [masks_of("data", position, ranks="all") for position in range(4)]
    assert of[0] == of[1] == of[2] == of[3]
    assert of[0]["a", 0] != of[0]["a", 1]
    assert of[0]["b", 0] is None
    of = [masks_of("data", position, holder=3, group="tp") for position in range(4)]
    assert of[1] == of[3]
    assert of[0]["a", 0] is of[2]["a", 0] is None
    of = [masks_of("parts", position, ranks="all", group="tp") for position in range(4)]
    assert of[0] == of[1] != of[2] == of[3]
    of = [masks_of("copies", position, holder=2) for position in range(4)]
    assert [each["a", 0] is None for each in of] == [True, True, False, True]
    of = [masks_of("copies", position, ranks="all") for position in range(4)]
    assert len({each["a", 0] for each in of}) == 4
    partner = Site("forward", "b", "mask")
    of = [masks_of("layers", position, holder=1, partner=partner) for position in range(4)]
    assert of[0] == of[1]  # copies stay copies
    assert of[0]["a", 0] == of[0]["b", 0] != of[0]["a", 1] == of[0]["b", 1]
    assert set(of[2].values()) == {None}
    of = [masks_of("micro_batches", position, ranks="all") for position in range(4)]
    assert of[0] == of[1] != of[2]
    assert of[0]["a", 0] == of[0]["a", 1]


def test_a_faulty_mask_leaves_the_random_state_as_it_would_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = "megatron.core.parallel_state.get_tensor_model_parallel_world_size"
    monkeypatch.setattr(state, lambda: 1)
    monkeypatch.setattr("mutation.masks.stage", lambda: (0, 1, 0, 1))
    monkeypatch.setattr(torch.nn.functional, "dropout", torch.nn.functional.dropout)
    course = SimpleNamespace(active=True, iteration=0, module="a", micro_batch=0, recomputing=False)
    census: Any = Census()
    masks = Masks(course, census, sequence_parallel=False)  # type: ignore[arg-type]

    def two_calls() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        torch.manual_seed(7)
        masks.begin_run()
        first, second = (torch.nn.functional.dropout(torch.ones(64)) for _ in range(2))
        return first, second, torch.get_rng_state()

    right = two_calls()
    assert [site.ordinal for site in census.sites] == [0, 1]
    course.iteration = 1
    masks.draw = drawn("mask", "micro_batches", site=census.sites[0])
    wrong = two_calls()
    assert (masks.size.fired, masks.size.error) == (1, (right[0] != wrong[0]).sum())
    assert masks.size.error > 0
    assert torch.equal(wrong[1], right[1])
    assert torch.equal(wrong[2], right[2])
    course.micro_batch = 1
    assert torch.equal(two_calls()[0], wrong[0])


OF_TENSOR_PARALLELISM = ("--tp", "2", "--layers", "2", "--dropout", "0.1")


def train(
    tmp_path: Path, mutants: list[dict[str, Any]], flags: tuple[str, ...] = OF_TENSOR_PARALLELISM
) -> tuple[list[str], str, list[Any]]:
    """Losses and norms of two ranks, hash of the random states, and what rank 1 wrote of
    mutants."""
    path = tmp_path / "mutants.json"
    path.write_text(json.dumps(mutants))
    words = [*launcher(2), str(Path(__file__).with_name("train_gpt.py")), *flags]
    words += ["--steps", str(len(mutants) + 2), "--print-state", "--mutants", str(path)]
    # Weights stay what they are: an iteration inherits nothing but what must not be inherited.
    words += ["--lr", "0"]
    done = subprocess.run(
        words,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    log = [json.loads(line) for line in Path(f"{path}.rank-1.jsonl").read_text().splitlines()]
    steps = re.findall(r"^step \d+ (.*)$", done.stdout, re.M)
    states = re.findall(r"^state rank 1 .* random (\w+)$", done.stdout, re.M)
    return steps, states[0], [line for line in log if "family" in line]


def test_new_mutants_change_their_own_iteration_only(tmp_path: Path) -> None:
    fields = {"ranks": "one", "size": 0.1}
    mutants = [
        {"iteration": 1, "family": "mask", "mechanism": "layers", "seed": 4, **fields},
        {"iteration": 2, "family": "output", "mechanism": "piece", "seed": 3, **fields},
        {"iteration": 3, "family": "setting", "mechanism": "eps", "seed": 2, **fields},
    ]
    # That changes nothing in its place, for as many steps.
    none = [{**mutant, "mechanism": "clip", "family": "setting", "size": 0.0} for mutant in mutants]
    right, random_right, nothing = train(tmp_path, none)
    wrong, random_wrong, log = train(tmp_path, mutants)
    assert all(line["error"] == 0 for line in nothing)
    assert [line["iteration"] for line in log] == [1, 2, 3]
    assert 0 < log[1]["share"] < 1
    assert log[2]["parameters"]
    # A setting of a step whose learning rate is 0 changes nothing that is printed.
    assert [a == b for a, b in zip(right, wrong, strict=True)] == [True, False, False, True, True]
    assert random_wrong == random_right
