"""What `attach` accepts, and the sentence it says where it is used wrongly."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import ttrace
from captured_run import index
from ttrace.adapters.torch.attach import _captures


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 2)).backward()
    optimizer.step()


def frozen(model):
    return model.requires_grad_(False)


# What is given, and the words that say what to do.
REFUSED = {
    "a class": (lambda m, o: (nn.Linear, o), "the model is the class Linear: give what it makes"),
    "an optimizer's class": (lambda m, o: (m, torch.optim.SGD), "the optimizer is the class SGD"),
    "swapped": (lambda m, o: (o, m), "the wrong way round: call ttrace.attach(model, optimizer)"),
    "parameters": (lambda m, o: (m.parameters(), o), "give the module itself, not its parameters"),
    "a list of parameters": (lambda m, o: (m, list(m.parameters())), "given as parameters"),
    "a generator as optimizer": (lambda m, o: (m, m.parameters()), "give the object that steps"),
    "a scheduler": (
        lambda m, o: (m, torch.optim.lr_scheduler.StepLR(o, 1)),
        "StepLR is a scheduler: give the optimizer that it changes",
    ),
    "no optimizer": (lambda m, o: (m, []), "there is no optimizer in the list"),
    "another object": (lambda m, o: (m, object()), "of type object, and no torch.optim.Optimizer"),
    "a function": (lambda m, o: (m.forward, o), "of type method, and no torch.nn.Module"),
    "one model twice": (lambda m, o: ([m, m], o), "the model '0' is a part of the model '1'"),
    "a part of another": (
        lambda m, o: ({"all": m, "first": m[0]}, o),
        "the model 'first' is a part of the model 'all': give the outer one alone",
    ),
    "a name with a dot": (lambda m, o: ({"a.b": m}, o), "'a.b' is no name for a model"),
    "no model": (lambda m, o: ([], o), "no model is given"),
    "nothing to train": (lambda m, o: (frozen(m), o), "(Sequential) has no parameter that is"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_use_is_said_in_one_sentence_and_training_goes_on(
    tmp_path, capfd, case, model, optimizer
):
    give, words = REFUSED[case]
    original = torch.autograd.backward
    hold = ttrace.attach(*give(model, optimizer), out=tmp_path / "trace")
    said = capfd.readouterr().err
    assert words in said and said.startswith("ttrace: not captured: ") and said.count("\n") == 1
    assert not hold.captures and hold.folder is None and _captures == []
    assert torch.autograd.backward is original
    (message,) = (tmp_path / "trace" / "messages.jsonl").read_text().splitlines()
    assert json.loads(message)["kind"] == "refused" and words in json.loads(message)["text"]
    model.requires_grad_(True)
    step(model, optimizer)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"out": 3}, "out is of type int: give the path of the trace's folder"),
        ({"out": b"trace"}, "out is of type bytes: give the path"),
        ({"out": ""}, "out is an empty path"),
        ({"loss_fn": 2.0}, "loss_fn is of type float, which cannot be called"),
        ({"loss_fn": nn.MSELoss}, "MSELoss'>, which cannot be called as it is"),
        ({"step": "step"}, "step is of type str, which cannot be called"),
    ],
)
def test_wrong_options_are_said(tmp_path, capfd, options, words, model, optimizer):
    ttrace.attach(model, optimizer, **{"out": tmp_path / "trace", **options})
    said = capfd.readouterr().err
    assert words in said and said.count("\n") == 1
    assert _captures == []


def test_a_folder_with_a_trace_is_refused(tmp_path, capfd, model, optimizer):
    ttrace.attach(model, optimizer, out=tmp_path / "trace")
    step(model, optimizer)
    step(model, optimizer)
    assert not ttrace.attach(model, optimizer, out=tmp_path / "trace").captures
    assert "has a trace already" in capfd.readouterr().err


def test_what_is_most_likely_not_meant_is_said_and_captured(tmp_path, capfd, model, optimizer):
    other = torch.optim.SGD(nn.Linear(4, 3).parameters(), lr=0.1)
    with ttrace.attach(model, other, out=tmp_path / "other") as hold:
        assert hold.captures
    assert "the optimizer steps none of the model's parameters" in capfd.readouterr().err
    step(model, optimizer)
    with ttrace.attach(model, optimizer, out=tmp_path / "late") as hold:
        assert hold.captures
    assert "the model has gradients already" in capfd.readouterr().err
    assert not hold.captures


def test_the_first_of_two_calls_counts(tmp_path, capfd, model, optimizer):
    first = ttrace.attach(model, optimizer, out=tmp_path / "trace")
    second = ttrace.attach(model, optimizer, out=tmp_path / "other")
    assert second.folder == first.folder == str(tmp_path / "trace")
    assert "called again with the same model: the first call counts" in capfd.readouterr().err
    first.close()
    assert not second.captures


def test_several_models_are_called_as_the_caller_calls_them(tmp_path, capfd):
    one, other = nn.Linear(4, 3), nn.Linear(3, 2)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (one, other)]
    for given, names in (
        ([one, other], {"0", "1"}),
        ({"one": one, "other": other}, {"one", "other"}),
    ):
        out = tmp_path / "-".join(names)
        hold = ttrace.attach(given, optimizers, out=out)
        for _ in range(2):
            for optimizer in optimizers:
                other(one(torch.ones(2, 4))).sum().backward()
                optimizer.step()
                one.zero_grad()
                other.zero_grad()
        assert not hold.captures and capfd.readouterr().err == ""
        records = [line for line in index(out) if line["type"] == "record"]
        inputs = [r for r in records if (r["role"], r["iteration"]) == ("input", 0)]
        # The second part of an iteration is the second call of each.
        assert {(r["fqn"], r["call"]) for r in inputs} == {(n, k) for n in names for k in (0, 1)}
        assert {r["micro_batch"] for r in inputs} == {0}
        parameters = {r["fqn"] for r in records if r["role"] == "grad_reduced"}
        assert parameters == {f"{name}.{leaf}" for name in names for leaf in ("weight", "bias")}


def test_what_people_have_at_hand_is_taken(tmp_path, monkeypatch, capfd, model, optimizer):
    monkeypatch.chdir(tmp_path)

    def one_iteration(batch):
        return model(batch).sum()

    hold = ttrace.attach(
        [model], (optimizer,), out=Path("trace"), loss_fn=nn.MSELoss(), step=one_iteration
    )
    assert hold.folder == str(tmp_path / "trace")
    (capture,) = _captures
    assert capture.given.step is one_iteration
    step(model, optimizer)
    step(model, optimizer)
    assert not hold.captures and capfd.readouterr().err == ""
    assert index("trace")[-1]["complete"] is True
    meta = json.loads((tmp_path / "trace" / "rank-00000.r0" / "meta.json").read_text())
    assert meta["adapter"]["loss_fn"] == "MSELoss"
