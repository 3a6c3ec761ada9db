"""What a script does to weights and optimizer state between two steps is compared with what the
other run's does."""

from __future__ import annotations

import pytest
import torch

from captured_run import compared
from test_torch_steps import nothing, train
from ttrace.capture.found_gradients import what_it_holds


def shrink(model, _):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.999)


def bound_one_weight(model, _):
    model[2].weight.data[0, 0] = 0.25


def forget_steps(_, optimizer):
    for state in optimizer.state.values():
        state["step"].zero_()


def forget_moments(_, optimizer):
    for state in optimizer.state.values():
        state["exp_avg"].zero_()


def step_again(_, optimizer):
    optimizer.step()


def keep_gradients(_, optimizer):
    optimizer.zero_grad = lambda: None


def keep_the_first_gradient(model, optimizer):
    def zero_grad():
        for name, parameter in model.named_parameters():
            if name != "0.weight":
                parameter.grad = None

    optimizer.zero_grad = zero_grad


def zero_gradients(_, optimizer):
    zero_grad = type(optimizer).zero_grad
    optimizer.zero_grad = lambda: zero_grad(optimizer, set_to_none=False)


def compare(tmp_path, of_reference, of_candidate):
    sides = tmp_path / "reference", tmp_path / "candidate"
    for folder, between in zip(sides, (of_reference, of_candidate), strict=True):
        train(folder, after_step=between)
    return compared(tmp_path / "verdict", *sides)


@pytest.mark.parametrize(
    ("between", "role", "arg", "evidence"),
    [
        (shrink, "param_updated", "", "times 0.999)"),
        (forget_steps, "optim_state", "step", "the count of steps of 4 parameters"),
        (forget_moments, "optim_state", "exp_avg", "times 0)"),
    ],
)
@pytest.mark.parametrize("by_candidate", [True, False])
def test_what_one_run_alone_changes_is_found(tmp_path, between, role, arg, evidence, by_candidate):
    runs = (nothing, between) if by_candidate else (between, nothing)
    result = compare(tmp_path, *runs)
    first = result["culprits"][0]
    assert (result["verdict"], first["iteration"]) == ("diverged", 0)
    assert (first["role"], first["tensor"]["arg"]) == (role, arg)
    assert [found["class"] for found in first["classes"]] == ["C"]
    assert evidence in first["classes"][0]["evidence"]
    unchanged = "reference" if by_candidate else "candidate"
    assert first["classes"][0]["evidence"].endswith(f"nothing changed it in the {unchanged}")


def test_a_second_step_without_a_forward_is_said(tmp_path):
    result = compare(tmp_path, nothing, step_again)
    first = result["culprits"][0]
    assert (result["verdict"], first["iteration"]) == ("diverged", 0)
    assert [found["class"] for found in first["classes"]] == ["C"]
    said = "the candidate calls step() again without a forward in between"
    assert said in first["classes"][0]["evidence"]
    # It is no iteration of its own: the next one is compared with the next one.
    assert result["coverage"]["reference_only"] == result["coverage"]["candidate_only"] == 0


@pytest.mark.parametrize("by_candidate", [True, False])
@pytest.mark.parametrize(
    ("between", "parameters"), [(keep_gradients, 4), (keep_the_first_gradient, 1)]
)
def test_gradients_that_one_run_does_not_empty_are_found(
    tmp_path, between, parameters, by_candidate
):
    runs = (nothing, between) if by_candidate else (between, nothing)
    result = compare(tmp_path, *runs)
    first = result["culprits"][0]
    assert (result["verdict"], first["iteration"]) == ("diverged", 1)
    fqn = "0.bias" if parameters == 4 else "0.weight"
    assert (first["fqn"], first["role"]) == (fqn, "grad_local")
    assert [found["class"] for found in first["classes"]] == ["S"]
    said = f"adds to gradients of {parameters} of 4 parameters that are not empty"
    assert said in first["classes"][0]["evidence"]


@pytest.mark.parametrize("between", [nothing, shrink, forget_steps, step_again, keep_gradients])
def test_what_both_do_is_no_fault(tmp_path, between):
    result = compare(tmp_path, between, between)
    assert result["culprits"] == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_what_a_gradient_holds_is_told_in_any_precision(dtype):
    empty, kept = torch.zeros(3, 5, dtype=dtype), torch.zeros(3, 5, dtype=dtype)
    kept[2, 4] = 1e-10
    assert what_it_holds(empty) == 0
    assert what_it_holds(kept) > 0
    assert what_it_holds(torch.tensor([float("nan")], dtype=dtype)) != 0
    assert what_it_holds(None) is None
    assert what_it_holds(kept.to_sparse()) is None


def test_gradients_of_zeros_are_empty(tmp_path):
    assert compare(tmp_path, nothing, zero_gradients)["culprits"] == []


def test_a_few_values_leave_the_verdict_open(tmp_path):
    result = compare(tmp_path, nothing, bound_one_weight)
    assert result["culprits"] == []
    assert result["verdict"] == "inconclusive"
    assert "state that is changed between steps in one run" in result["reason"]
