"""Gradients that a loop clears before any step has used them."""

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

import ttrace
from test_torch_loops import verdict
from test_torch_native import Tensors, notes

ITERATIONS = 2
MICRO_BATCHES = 2


class Loop:
    """Steps of two micro-batches of four rows each; `line` is where it clears them in between."""

    line = 0

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self, folder):
        ttrace.attach(self.model, self.optimizer, out=str(folder))
        shape = (ITERATIONS + 1) * MICRO_BATCHES, 4, 6
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        for iteration in range(ITERATIONS + 1):
            self.optimizer.zero_grad()
            self.accumulate(x[iteration * MICRO_BATCHES : (iteration + 1) * MICRO_BATCHES])
            self.optimizer.step()
        return folder

    def accumulate(self, batches):
        for k, batch in enumerate(batches):
            if k > 0:
                self.between()
            self.backward(batch)
        self.last()

    def backward(self, batch):
        (self.model(batch).square().mean() / MICRO_BATCHES).backward()

    def between(self):
        pass

    def last(self):
        pass


class ByOptimizer(Loop):
    def between(self):
        self.optimizer.zero_grad()
        self.line = inspect.currentframe().f_lineno - 1


class ByModule(Loop):
    def between(self):
        self.model.zero_grad(set_to_none=False)
        self.line = inspect.currentframe().f_lineno - 1


class OfOtherModule(Loop):
    """It has no gradient of the model."""

    def between(self):
        nn.Linear(2, 2).zero_grad()


class KeptByHand(Loop):
    """What is cleared is added up beside the gradients."""

    def between(self):
        self.kept = [p.grad.clone() for p in self.model.parameters()]
        self.optimizer.zero_grad()

    def last(self):
        for parameter, kept in zip(self.model.parameters(), self.kept, strict=True):
            parameter.grad += kept


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """With its noise."""
    folder = Loop().run(tmp_path_factory.mktemp("plain") / "out")
    with pytest.MonkeyPatch.context() as patch:
        for leg in ("noise.1", "noise.2", "noise.3"):
            out = folder / "legs" / leg
            out.mkdir(parents=True)
            (out / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
            patch.setenv("TTRACE_OUT", str(out))
            patch.setenv("TTRACE_LEG", leg)
            Loop().run(out)
    return folder


def test_the_iteration_goes_on(tmp_path):
    folder = ByOptimizer().run(tmp_path / "out")
    assert notes(folder, "skipped_step") == []
    cleared = [
        (n["iteration"], n["micro_batches"], sorted(n["parameters"]))
        for n in notes(folder, "gradients_cleared")
    ]
    names = ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert cleared == [(0, 1, names), (1, 1, names)]
    shapes = Tensors(folder, tmp_path / "scratch").shapes
    for iteration in range(ITERATIONS):
        assert shapes["", "output", iteration, 0, "0", "forward"][1] == (8, 16)


@pytest.mark.parametrize("kind", [ByOptimizer, ByModule])
def test_what_was_cleared_is_named(tmp_path, plain, kind):
    loop = kind()
    code, text = verdict(plain, loop.run(tmp_path / "out"))
    assert code == 1
    assert "(backward, compute), iteration 0, class S" in text
    words = " ".join(text.split())
    assert "the loop clears it after the first micro-batch of the iteration" in words
    assert f"{Path(__file__).name}:{loop.line}, where the loop clears its gradients" in words
    assert "iteration 0: the loop clears gradients after 1 micro-batch, before the step" in words
    assert "P: missing partial sum" not in text  # its terms are not missing: they were cleared


@pytest.mark.parametrize("kind", [OfOtherModule, KeptByHand])
def test_who_loses_nothing_is_within(tmp_path, plain, kind):
    code, text = verdict(plain, kind().run(tmp_path / "out"))
    assert code == 0, text


def test_what_both_runs_clear_is_no_fault(tmp_path):
    traces = [ByOptimizer().run(tmp_path / name) for name in ("one", "two")]
    assert verdict(*traces)[0] == 0


@pytest.mark.parametrize("why", ["not finite", "too large"])
def test_a_loop_that_gives_a_step_up_ends_its_iteration(tmp_path, why):
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ttrace.attach(model, optimizer, out=str(tmp_path / "out"))
    for step in range(3):
        optimizer.zero_grad()
        unusable = step == 0
        scale = float("inf") if unusable and why == "not finite" else 1.0
        (model(torch.randn(2, 6)).square().mean() * scale).backward()
        if why == "too large":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not unusable:
            optimizer.step()
            line = inspect.currentframe().f_lineno - 1
    calls = notes(tmp_path / "out", "source_of_call")
    assert [n["line"] for n in calls if n["what"] == "step"] == [line]
    skipped = notes(tmp_path / "out", "skipped_step")
    assert [(n["iteration"], n["cleared"]) for n in skipped] == [(0, True)]
    tensors = Tensors(tmp_path / "out", tmp_path / "scratch")
    assert tensors.shapes["", "output", 1, 0, "0", "forward"][1] == (2, 4)
