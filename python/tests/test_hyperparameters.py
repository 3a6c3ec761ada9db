"""What is noted of an optimizer's step, on real optimizers and in real runs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import ttrace
from captured_run import compared, index
from captured_run import run as run_zoo
from test_torch_native import DDP, notes, run
from test_torch_steps import check, train
from ttrace.capture import hyperparameters


class Notes:
    """Takes notes as a session does."""

    def __init__(self):
        self.all = []

    def note(self, kind, /, **values):
        assert kind == "optimizer_group"
        self.all.append(values)


def noted(*optimizers, names=None, of_step=None):
    notes = Notes()
    names = names or {}
    pairs = [(optimizer, of_step or {}) for optimizer in optimizers]
    hyperparameters.note_step(notes, 3, pairs, lambda parameter: names.get(id(parameter)))
    return notes.all


def test_each_group_is_noted_with_the_values_of_its_step():
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW(
        [{"params": [first], "lr": 0.5}, {"params": [second], "weight_decay": 0.0}],
        lr=torch.tensor(0.25),
        betas=(0.8, 0.9),
    )
    names = {id(first): "a", id(second): "b"}
    one, two = noted(optimizer, names=names, of_step={"clip_grad": 1.0})
    assert (one["kind"], one["iteration"], one["group"]) == ("Adam", 3, 0)
    assert (one["parameters"], two["parameters"]) == (["a"], ["b"])
    assert (one["values"]["lr"], two["values"]["lr"]) == (0.5, 0.25)
    assert two["values"]["weight_decay"] == 0.0
    assert two["values"]["betas"] == [0.8, 0.9]
    assert two["values"]["decoupled_weight_decay"] is True
    assert two["values"]["clip_grad"] == 1.0
    assert "fused" not in two["values"]


def test_parameters_without_a_name_and_several_optimizers():
    mine, foreign = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    names = {id(mine): "mine"}
    sgd = torch.optim.SGD([mine, foreign], lr=1.0, momentum=0.9)
    adam = torch.optim.Adam([foreign])
    notes = noted(adam, sgd, names=names)
    assert [(n["optimizer"], n["kind"], n["parameters"]) for n in notes] == [(1, "SGD", ["mine"])]
    assert notes[0]["values"]["momentum"] == 0.9


def test_a_class_of_the_users_own_has_values_and_no_kind():
    class Adam(torch.optim.Adam):
        pass

    parameter = nn.Parameter(torch.ones(1))
    (note,) = noted(Adam([parameter], lr=2.0), names={id(parameter): "p"})
    assert "kind" not in note
    assert note["values"]["lr"] == 2.0


def test_what_json_cannot_hold_is_left_out():
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    optimizer.defaults["schedule"] = None
    optimizer.param_groups[0].update(schedule=lambda step: step, lr=math.inf)
    (note,) = noted(optimizer, names={id(parameter): "p"})
    assert "schedule" not in note["values"]
    assert note["values"]["lr"] == "inf"


def test_many_parameters_are_several_notes():
    parameters = [nn.Parameter(torch.ones(1)) for _ in range(20_000)]
    names = {id(parameter): str(i) for i, parameter in enumerate(parameters)}
    notes = noted(torch.optim.SGD(parameters, lr=1.0), names=names)
    assert len(notes) > 1
    assert [name for note in notes for name in note["parameters"]] == list(names.values())


def test_a_plain_loop_says_what_it_steps_and_clips_by(tmp_path):
    run(DDP, "--steps", "2", "--lr", "0.01", out=tmp_path / "t")
    found = notes(tmp_path / "t", "optimizer_group")
    assert [note["iteration"] for note in found] == [0, 1]
    for note in found:
        values = note["values"]
        assert note["kind"] == "Adam"
        assert (values["lr"], values["weight_decay"]) == (0.01, 0.01)
        assert (values["clip_grad"], values["clip_grad_norm_type"]) == (1.0, 2.0)
        assert isinstance(values["clipped"], bool)
        assert {"embedding.weight", "blocks.0.up.bias", "head.weight"} < set(note["parameters"])


def torch_s_own(limit):
    return lambda model: nn.utils.clip_grad_norm_(model.parameters(), limit)


def in_two_calls(model):
    parameters = list(model.parameters())
    norm = nn.utils.get_total_norm([p.grad for p in parameters])
    nn.utils.clip_grads_with_norm_(parameters, 0.1, norm)


def by_hand(model):
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(0.1 / norm)


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "found"),
    [
        (torch_s_own(0.1), lambda _: None, ["none where the reference has 0.1"]),
        (lambda _: None, torch_s_own(0.1), ["0.1 where the reference has none"]),
        (torch_s_own(0.1), torch_s_own(0.1), []),
        (torch_s_own(0.1), in_two_calls, []),
        (lambda _: None, in_two_calls, ["0.1 where the reference has none"]),
        (torch_s_own(100.0), lambda _: None, []),
        (torch_s_own(0.1), by_hand, []),
        (by_hand, torch_s_own(0.1), []),
        (by_hand, by_hand, []),
    ],
)
def test_clipping_that_one_side_lacks(tmp_path, of_reference, of_candidate, found):
    sides = tmp_path / "reference", tmp_path / "candidate"
    for folder, clip in zip(sides, (of_reference, of_candidate), strict=True):
        train(folder, before_step=clip)
    result = compared(tmp_path / "verdict", *sides)
    by_settings = [c for c in result["culprits"] if c["found_by"] == ["settings"]]
    said = [c["classes"][0]["evidence"] for c in by_settings]
    assert said == [f"clip_grad is {x}, for 4 of 4 parameters (iteration 0)" for x in found]
    assert all(c["classes"][0]["class"] == "H" for c in by_settings)


def after_each(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


@pytest.mark.parametrize("of_reference", ["after_backward", "before_step"])
@pytest.mark.parametrize("of_candidate", ["after_backward", "before_step"])
def test_clipping_after_each_micro_batch(tmp_path, of_reference, of_candidate):
    sides = tmp_path / "reference", tmp_path / "candidate"
    for folder, when in zip(sides, (of_reference, of_candidate), strict=True):
        train(folder, micro_batches=2, **{when: after_each})
    result = compared(tmp_path / "verdict", *sides)
    classes = [[d["class"] for d in c["classes"]] for c in result["culprits"]]
    if of_reference == of_candidate:
        assert not classes
        return
    assert classes == [["H"]]
    counts = ("2", "1") if of_candidate == "after_backward" else ("1", "2")
    assert result["culprits"][0]["classes"][0]["evidence"] == (
        "the number of clippings in an iteration is {} where the reference has {}, for 4 of 4"
        " parameters (iteration 0)".format(*counts)
    )


def unscaled_first(parameters, optimizer, scaler):
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(parameters, 0.1)


def limit_scaled(parameters, optimizer, scaler):
    nn.utils.clip_grad_norm_(parameters, 0.1 * scaler.get_scale())


def limit_not_scaled(parameters, optimizer, scaler):
    nn.utils.clip_grad_norm_(parameters, 0.1)


def train_scaled(folder, clip):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    ttrace.attach(model, optimizer, out=str(folder))
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale((model(torch.randn(5, 6)) - torch.randn(5, 4)).square().mean()).backward()
        clip(list(model.parameters()), optimizer, scaler)
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize(
    ("of_candidate", "found"),
    [
        (limit_scaled, []),
        (limit_not_scaled, ["clip_grad is 9.765625e-05 where the reference has 0.1"]),
    ],
)
def test_a_limit_on_scaled_gradients_is_what_it_means(tmp_path, of_candidate, found):
    sides = tmp_path / "reference", tmp_path / "candidate"
    for folder, clip in zip(sides, (unscaled_first, of_candidate), strict=True):
        train_scaled(folder, clip)
        code, text = check(folder)  # its own steps, made again
        assert code == 0 and "steps (8 of parameters)" in text, text
    result = compared(tmp_path / "verdict", *sides)
    said = [c["classes"][0]["evidence"] for c in result["culprits"] if c["iteration"] == 0]
    assert said == [f"{words}, for 4 of 4 parameters (iteration 0)" for words in found]


def clip_and_look(model):
    """Some loops log the norm of what they have clipped."""
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    nn.utils.clip_grad_norm_(model.parameters(), float("inf"))


def look_and_clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


@pytest.mark.parametrize("clip", [clip_and_look, look_and_clip])
def test_a_norm_that_is_taken_twice_is_one(tmp_path, clip):
    sides = tmp_path / "reference", tmp_path / "candidate"
    for folder in sides:
        train(folder, before_step=clip)
    norms = [e for e in index(sides[0]) if e["type"] == "record" and e["role"] == "grad_norm"]
    assert len(norms) == len({(e["iteration"], e["leg"]) for e in norms}) > 0
    assert not compared(tmp_path / "verdict", *sides)["culprits"]


def test_megatron_in_bf16_names_parameters_and_not_their_masters(tmp_path):
    pytest.importorskip("megatron.core")
    arguments = ["--steps", "1", "--layers", "2", "--bf16", "--tp", "2", "--clip", "0"]
    run_zoo(arguments, processes=2, TTRACE_OUT=tmp_path / "t", TTRACE_ITERATIONS="0:1")
    for rank in range(2):
        entries = index(tmp_path / "t", rank)
        groups = [e["data"] for e in entries if e.get("kind") == "optimizer_group"]
        named = [fqn for group in groups for fqn in group["parameters"]]
        recorded = {e["fqn"] for e in entries if e["type"] == "record" and e["role"] == "param"}
        assert len(named) == len(set(named))
        assert set(named) == recorded
        assert all(group["values"]["clip_grad"] is None for group in groups)
