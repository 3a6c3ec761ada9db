"""Mutants change what they say and nothing else; the words for them are checked."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from mutation.mutant import Mutant, read_mutants
from mutation.perturb import FaultyGradient, SizeOfError, perturbed

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
