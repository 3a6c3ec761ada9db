"""Habits of training loops that the toys of the zoo do not have: capture changes no bit of the run,
and gives the same tensors as a loop that does the same in another way."""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ttrace
from launch_ranks import launcher
from test_torch_native import ROOT, Tensors, assert_aligned, diff, entries, notes, run

WIDTH = 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden):
        return hidden + self.down(nn.functional.gelu(self.up(self.norm(hidden))))


class Net(nn.Module):
    def __init__(self, reentrant=None):
        super().__init__()
        self.first = nn.Linear(6, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 4)
        self.reentrant = reentrant

    def forward(self, x):
        hidden = self.first(x)
        # The first block is used twice.
        for block in (self.blocks[0], *self.blocks):
            if self.reentrant is None:
                hidden = block(hidden)
            elif self.reentrant == "nested":
                inner = functools.partial(checkpoint, block, use_reentrant=True)
                hidden = checkpoint(inner, hidden, use_reentrant=True)
            else:
                hidden = checkpoint(block, hidden, use_reentrant=self.reentrant)
        return self.head(hidden)


def simple(model, x, y):
    return [(model(x) - y).square().mean()]


def two_backwards(model, x, y):
    out = model(x)
    return [(out - y).square().mean(), out.abs().mean()]


def one_backward(model, x, y):
    return [sum(two_backwards(model, x, y))]


def pair(model, x, y):
    return [(model(x) - model(x.flip(1))).square().mean() + (model(x) - y).square().mean()]


@dataclasses.dataclass
class Loop:
    """Three steps of eight rows each."""

    losses: object = simple
    make: object = Net
    after: object = lambda model: model  # what happens to the model after attach
    rows: int = 2
    read: str = "loader"
    scaler: object = None
    dtype: object = None
    optimizer: object = torch.optim.SGD

    def batches(self):
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(40, 6, generator=generator)
        y = torch.randn(40, 4, generator=generator)
        if self.read == "hand":
            yield from zip(x.split(self.rows), y.split(self.rows), strict=True)
            return
        data = torch.utils.data.TensorDataset(x, y)
        loader = torch.utils.data.DataLoader(data, batch_size=self.rows)
        if self.read == "loader":
            yield from loader
            return
        held = []  # read ahead
        for item in loader:
            held.append(item)
            if len(held) > 2:
                yield held.pop(0)

    def run(self, out=None):
        """What it computed; captured into a folder, or not."""
        torch.manual_seed(0)
        model = self.make()
        parameters = list(model.parameters())
        optimizer = self.optimizer(parameters, lr=0.05)
        scaler = self.scaler() if self.scaler else None
        if out is not None:
            ttrace.attach(model, optimizer, out=str(out))
        model = self.after(model)
        batches = self.batches()
        accumulate = 8 // self.rows
        lines = []
        for _ in range(3):
            for _ in range(accumulate):
                x, y = next(batches)
                with torch.autocast("cpu", self.dtype) if self.dtype else contextlib.nullcontext():
                    losses = [loss / accumulate for loss in self.losses(model, x, y)]
                for loss in losses:
                    scaled = scaler.scale(loss) if scaler else loss
                    scaled.backward(retain_graph=loss is not losses[-1])
            if scaler:
                scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(parameters, 1.0)
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()
            lines.append((losses[0].item(), norm.item()))
        state = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
        for parameter in parameters:
            state.update(parameter.detach().float().numpy().tobytes())
        return str(lines), state.hexdigest()


class Captured:
    """A loop's trace; the run was the same as without capture."""

    def __init__(self, tmp_path, name, loop, same=True):
        self.folder = tmp_path / name
        plain = loop.run()
        captured = loop.run(self.folder)
        assert captured == plain or not same
        (end,) = [e for e in entries(self.folder) if e["type"] == "end"]
        assert end["complete"], end
        self.tensors = Tensors(self.folder, tmp_path / f"{name}-scratch")

    def notes(self, kind):
        return notes(self.folder, kind)

    def count(self, **wanted):
        records = (e for e in entries(self.folder) if e["type"] == "record")
        return sum(all(e[key] == value for key, value in wanted.items()) for e in records)

    def duplicates(self):
        keys = ("fqn", "role", "iteration", "call", "arg", "pass", "micro_batch")
        found = Counter(
            tuple(e[k] for k in keys) for e in entries(self.folder) if e["type"] == "record"
        )
        return [key for key, times in found.items() if times > 1]


def verdict(*traces):
    folders = [str(getattr(trace, "folder", trace)) for trace in traces]
    command = [sys.executable, "-m", "ttrace._cli", "check", *folders]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_two_backwards_on_one_graph_are_one_gradient(tmp_path):
    one = Captured(tmp_path, "one", Loop(one_backward))
    two = Captured(tmp_path, "two", Loop(two_backwards))
    assert two.duplicates() == []
    assert_aligned(one.tensors, two.tensors)
    assert ("loss", "loss", 0, 0, "value", "forward") in two.tensors.shapes


def isolated(tmp_path, monkeypatch, loop, real):
    """The folder and the tensors of a leg that isolates the loop from its own values."""
    folder = real.folder / "legs" / "isolated"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    monkeypatch.setenv("TTRACE_OUT", str(folder))
    monkeypatch.setenv("TTRACE_LEG", "isolated")
    loop.run(folder)
    return folder, Tensors(folder, tmp_path / "scratch", "isolated")


def test_isolated_from_their_own_values_two_backwards_give_the_sum_once(tmp_path, monkeypatch):
    loop = Loop(two_backwards)
    real = Captured(tmp_path, "real", loop)
    _, alone = isolated(tmp_path, monkeypatch, loop, real)
    assert_aligned(real.tensors, alone)


class Forces(Net):
    """What is to be learnt is the derivative of an energy."""

    def forward(self, x):
        x = x.detach().requires_grad_()
        energy = super().forward(x).sum(dim=1)
        (forces,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        return energy, forces


def of_forces(model, x, y):
    energy, forces = model(x)
    return [energy.square().mean() + forces.square().mean()]


def gradient_penalty(model, x, y):
    x = x.clone().requires_grad_()
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return [(out - y).square().mean() + (slope.norm(dim=1) - 1).square().mean()]


@pytest.mark.parametrize("losses", [of_forces, gradient_penalty])
def test_gradients_that_are_part_of_what_is_computed_are_not_recorded(tmp_path, losses):
    make = Forces if losses is of_forces else Net
    small = Captured(tmp_path, "small", Loop(losses, make=make))
    large = Captured(tmp_path, "large", Loop(losses, make=make, rows=4))
    assert small.duplicates() == []
    assert_aligned(small.tensors, large.tensors)
    output = small.tensors["head", "output", 0, 0, "0", "forward"]
    expected = 2 * (output - small.tensors["data", "data", 0, 0, "1", "forward"]) / 32
    if losses is of_forces:
        expected = 2 * output.sum(dim=1, keepdim=True).expand(8, 4) / 8
    error = small.tensors["head", "grad_output", 0, 0, "0", "backward"] - expected
    assert error.norm() <= 1e-5 * expected.norm()
    handed_on = expected @ small.tensors["head.weight", "param", 0, 0, "", "forward"]
    error = small.tensors["head", "grad_input", 0, 0, "input", "backward"] - handed_on
    assert error.norm() <= 1e-5 * handed_on.norm()
    (notice,) = small.notes("notice")
    assert "autograd.grad" in notice["text"]


def test_forwards_until_a_backward_are_calls_of_one_micro_batch(tmp_path):
    small = Captured(tmp_path, "small", Loop(pair))
    large = Captured(tmp_path, "large", Loop(pair, rows=4))
    assert small.duplicates() == []
    assert {key[3] for key in small.tensors.shapes if key[0] == ""} == {0, 1, 2}
    assert {key[3] for key in small.tensors.shapes if key[0] == "blocks.0.up"} == set(range(6))
    assert small.tensors.shapes["", "output", 0, 2, "0", "forward"][1] == (8, 4)
    assert_aligned(small.tensors, large.tensors)


@pytest.mark.parametrize("reentrant", [True, False, "nested"])
def test_checkpointed_modules_show_all_their_gradients(tmp_path, reentrant):
    plain = Captured(tmp_path, "plain", Loop())
    saving = Captured(tmp_path, "saving", Loop(make=lambda: Net(reentrant)))
    assert saving.duplicates() == []
    for role in ("grad_output", "grad_input", "grad_local"):
        wanted = plain.count(role=role)
        assert (role, saving.count(role=role)) == (role, wanted)
    again = saving.count(role="output", **{"pass": "recompute"})
    assert again == (32 * 4 if reentrant else 0)
    for key, shape in plain.tensors.shapes.items():
        assert saving.tensors.shapes[key] == shape
        error = (saving.tensors[key] - plain.tensors[key]).norm()
        assert error <= 1e-5 * plain.tensors[key].norm().clamp(min=1e-30), key
    for key in saving.tensors.shapes:
        if key[5] == "recompute":
            assert torch.equal(saving.tensors[key], saving.tensors[(*key[:5], "forward")])
    assert verdict(plain, saving)[0] == verdict(saving, plain)[0] == 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_only_a_reentrant_checkpoints_backward_is_isolated(tmp_path, monkeypatch, reentrant):
    loop = Loop(make=lambda: Net(reentrant))
    real = Captured(tmp_path, "real", loop)
    folder, alone = isolated(tmp_path, monkeypatch, loop, real)
    assert_aligned(real.tensors, alone)
    own = {note["fqn"] for note in notes(folder, "not_isolated") if note["role"] == "grad_output"}
    within = {f"blocks.{i}{name}" for i in range(3) for name in ("", ".up", ".norm", ".down")}
    assert own == (set() if reentrant else {n for n in within if (n, "input") in seen(alone)})


def seen(tensors):
    return {key[:2] for key in tensors.shapes}


@pytest.mark.parametrize("read", ["ahead", "hand"])
def test_items_belong_to_the_forward_that_uses_them(tmp_path, read):
    plain = Captured(tmp_path, "plain", Loop())
    other = Captured(tmp_path, "other", Loop(read=read))
    if read == "ahead":
        assert_aligned(plain.tensors, other.tensors)
    for iteration in range(2):
        args = ("0", "1") if read == "ahead" else ("x", "x")
        place = ("data", "data", iteration, 0)
        mine, its = (*place, args[0], "forward"), (*place, "0", "forward")
        assert torch.equal(other.tensors[mine], plain.tensors[its])
    assert verdict(plain, other)[0] == 0


def test_a_loader_that_reads_ahead_is_given_the_rows_of_the_reference(tmp_path, monkeypatch):
    """The candidate's own rows are other ones."""
    reference = Captured(tmp_path, "reference", Loop())

    dataset = torch.utils.data.TensorDataset
    monkeypatch.setattr(
        torch.utils.data, "TensorDataset", lambda x, y: dataset(x.flip(0), y.flip(0))
    )
    for read in ("loader", "ahead"):
        out = tmp_path / read
        out.mkdir()
        (out / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
        monkeypatch.setenv("TTRACE_OUT", str(out))
        monkeypatch.setenv("TTRACE_GRAFT", str(reference.folder))
        loop = Loop(read=read)
        loop.run(out)
        grafted = Tensors(out, tmp_path / f"{read}-scratch")
        assert not notes(out, "not_grafted")
        assert {n["iteration"] for n in notes(out, "graft") if n["what"] == "data"} >= {0, 1}
        assert_aligned(reference.tensors, grafted, skip=("data", "param_updated"))


@pytest.mark.parametrize("seen", [True, False], ids=["loss function", "own loss"])
def test_batches_made_by_hand_are_grafted(tmp_path, monkeypatch, seen):
    losses = simple
    if seen:

        def losses(model, x, y):
            return [nn.MSELoss()(model(x), y)]

    reference = Captured(tmp_path, "reference", Loop(losses, read="hand"))
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    monkeypatch.setenv("TTRACE_OUT", str(out))
    monkeypatch.setenv("TTRACE_GRAFT", str(reference.folder))
    monkeypatch.setattr(torch.Tensor, "split", lambda s, n: s.flip(0).tensor_split(len(s) // n))
    Loop(losses, read="hand").run(out)
    assert "data" in {n["what"] for n in notes(out, "graft_begins")}
    grafted = Tensors(out, tmp_path / "scratch")
    same = ("", "input", 0, 0, "x", "forward")
    assert torch.equal(grafted[same], reference.tensors[same])
    kept = notes(out, "not_grafted")
    assert {(n["what"], n["fqn"]) for n in kept} == (set() if seen else {("data", "target")})
    assert all("rows of x are not the reference's" in n["reason"] for n in kept)
    if seen:
        assert_aligned(reference.tensors, grafted, skip=("data", "param_updated"))


def compiled(model):
    return torch.compile(model, backend="aot_eager", fullgraph=True)


def in_place(model):
    model.compile(backend="aot_eager", fullgraph=True)
    return model


def part(how):
    def make():
        model = Net()
        model.blocks[1] = how(model.blocks[1])
        return model

    return make


def forward_only():
    model = Net()
    model.forward = compiled(model.forward)
    return model


COMPILED = {
    "before": (Loop(make=lambda: compiled(Net())), ""),
    "after": (Loop(after=compiled), ""),
    "in place": (Loop(make=lambda: in_place(Net())), ""),
    "in place after": (Loop(after=in_place), ""),
    "part": (Loop(make=part(compiled)), "blocks.1"),
    "part in place": (Loop(make=part(in_place)), "blocks.1"),
    "forward": (Loop(make=forward_only), None),
    "traced": (Loop(make=lambda: torch.jit.trace(Net(), torch.ones(4, 6))), ""),
    "part traced": (
        Loop(make=part(lambda b: torch.jit.trace(b, torch.ones(4, WIDTH)))),
        "blocks.1",
    ),
    "part scripted": (Loop(make=part(torch.jit.script)), "blocks.1"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_modules_are_seen_from_outside(tmp_path, case):
    loop, inside = COMPILED[case]
    plain = Captured(tmp_path, "plain", Loop())
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    found = Captured(tmp_path, "found", loop)
    # Once without capture and once with it; not again for every step.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    assert not torch._dynamo.utils.counters["graph_break"]
    named = {note["fqn"] for note in found.notes("compiled")}
    outer = {"first", "blocks.0", "blocks.1", "blocks.2", "head"}
    assert named == (outer if inside is None else {inside})
    for key, shape in found.tensors.shapes.items():
        assert plain.tensors.shapes[key] == shape
        error = (found.tensors[key] - plain.tensors[key]).norm()
        assert error <= 1e-5 * plain.tensors[key].norm().clamp(min=1e-30), key
    for key in plain.tensors.shapes.keys() - found.tensors.shapes.keys():
        assert key[1] in ("input", "output", "grad_input", "grad_output")
        assert any(not fqn or key[0] == fqn or key[0].startswith(f"{fqn}.") for fqn in named), key
        assert key[0], "the model itself is seen"


class Pair(Net):
    """Returns its logits beside what the loss is made of, as nanoGPT does."""

    def forward(self, x):
        out = super().forward(x)
        return out * 2, out.square().mean()


def test_a_result_of_compiled_code_without_a_gradient_has_none(tmp_path):
    def losses(model, x, y):
        return [model(x)[1]]

    torch._dynamo.reset()
    found = Captured(tmp_path, "found", Loop(losses, make=Pair, after=compiled))
    args = {key[4] for key in found.tensors.shapes if key[1] == "grad_output"}
    assert args == {"1"}


class Mean(Net):
    """A result that no row has to itself, another one in each micro-batch."""

    def forward(self, x):
        return super().forward(x).mean(dim=0)


class Constant(Net):
    """A loss that all micro-batches have in common as training begins."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        out = super().forward(x)
        return nn.functional.cross_entropy(out, (x.sum(dim=1) > 0).long())


# What micro-batches do not share may yet be equal in the run and in what it is isolated from.
STATISTICS = {
    "loss": (Pair, lambda model, x, y: [model(x)[1]]),
    "vector": (Mean, lambda model, x, y: [(model(x) - y[0]).square().sum()]),
    "constant": (Constant, lambda model, x, y: [model(x)]),
}


@pytest.mark.parametrize("case", list(STATISTICS))
def test_a_statistic_of_each_micro_batch_is_not_taken_for_what_they_share(
    tmp_path, monkeypatch, case
):
    make, losses = STATISTICS[case]
    torch._dynamo.reset()
    loop = Loop(losses, make=make, after=compiled)
    real = Captured(tmp_path, "real", loop)
    folder, alone = isolated(tmp_path, monkeypatch, loop, real)
    assert_aligned(real.tensors, alone)
    # Its gradient stays as it is, which is said of each iteration.
    assert [note["iteration"] for note in notes(folder, "not_isolated")] == [0, 1]


def test_inductor_is_left_alone(tmp_path):
    # Small, because a C++ compiler makes each kernel: those of Net took it half a minute.
    loop = Loop(
        make=lambda: nn.Sequential(nn.Linear(6, WIDTH), nn.GELU(), nn.Linear(WIDTH, 4)),
        after=lambda model: torch.compile(model, fullgraph=True),
    )
    torch._dynamo.reset()
    found = Captured(tmp_path, "found", loop)
    assert found.count(role="output") == 8 and found.count(role="grad_reduced") == 4 * 2


def overflowing():
    return torch.amp.GradScaler("cpu", init_scale=2.0**40, backoff_factor=2.0**-30)


def test_a_loss_scale_is_taken_out(tmp_path):
    plain = Captured(tmp_path, "plain", Loop())
    scaler = Loop(scaler=lambda: torch.amp.GradScaler("cpu", init_scale=1024.0))
    scaled = Captured(tmp_path, "scaled", scaler)
    assert [n["scale"] for n in scaled.notes("loss_scale")] == [1024.0, 1024.0]
    assert verdict(plain, scaled)[0] == 0
    scales = {(e["role"], tuple(e["scale"])) for e in entries(scaled.folder) if "scale" in e}
    assert {("grad_output", (1, 1024)), ("grad_local", (1, 1024)), ("loss", (1, 1024))} <= scales
    assert ("grad_reduced", (1, 1)) in scales and ("grad_norm", (1, 1)) in scales


def test_a_step_that_is_skipped_ends_its_iteration(tmp_path):
    loop = Loop(scaler=overflowing, dtype=torch.float16)
    found = Captured(tmp_path, "found", loop)
    assert [(n["iteration"], n["cleared"]) for n in found.notes("skipped_step")] == [(0, False)]
    assert [n["scale"] for n in found.notes("loss_scale")] == [2.0**40, 1024.0]
    for iteration in range(2):
        assert found.tensors.shapes["", "output", iteration, 0, "0", "forward"][1] == (8, 4)
    for key in found.tensors.shapes:
        if key[1] == "param_updated" and key[2] == 0:
            before = found.tensors[key[0], "param", 0, 0, "", "forward"]
            assert torch.equal(found.tensors[key], before)


def test_a_column_of_an_item_in_use_is_not_taken_for_one_of_the_next_item(tmp_path):
    """Items are fetched ahead, each has two columns that the model is called with in turn, and all
    have equal masks."""

    class Masked(Net):
        def forward(self, x, mask):
            return super().forward(x * mask)

    torch.manual_seed(0)
    data = [
        {name: torch.randn(6) for name in ("first", "second")} | {"mask": torch.ones(6)}
        for _ in range(16)
    ]
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ttrace.attach(model, optimizer, out=str(tmp_path / "out"))
    items = iter(torch.utils.data.DataLoader(data, batch_size=2))
    for _ in range(3):
        optimizer.zero_grad()
        for item in (next(items), next(items)):
            first = model(item["first"], item["mask"].clone())
            second = model(item["second"], item["mask"].clone())
            (first - second).square().mean().backward()
        optimizer.step()
    read = [n for n in notes(tmp_path / "out", "fed_call") if n["fed"] == "data"]
    assert [(n["iteration"], n["micro_batch"], n["call"]) for n in read] == [
        (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)
    ]  # fmt: skip


def test_a_norm_keeps_its_precision(tmp_path):
    class Low(Net):
        def __init__(self):
            super().__init__()
            self.to(torch.bfloat16)

        def forward(self, x):
            return super().forward(x.bfloat16())

    found = Captured(tmp_path, "found", Loop(make=Low))
    assert found.tensors.shapes["grad_norm", "grad_norm", 0, 0, "", "optimizer"][0] == "bfloat16"
    # One process has no copies to compare, but steps that can be made again.
    assert verdict(found)[0] == 0


def test_how_large_the_parts_of_a_gradient_are_is_noted(tmp_path):
    found = Captured(tmp_path, "found", Loop())
    noted = found.notes("gradient_parts")
    assert [note["iteration"] for note in noted] == [0, 1]
    torch.manual_seed(0)
    model, squares, largest = Net(), Counter(), Counter()
    for x, y in itertools.islice(Loop().batches(), 4):  # the first step's
        (simple(model, x, y)[0] / 4).backward()
        for fqn, parameter in model.named_parameters():
            squares[fqn] += parameter.grad.double().square().sum().item()
            largest[fqn] += parameter.grad.double().abs().max().item() ** 2
        model.zero_grad()
    assert noted[0]["squares"] == pytest.approx(dict(squares), rel=1e-5)
    assert noted[0]["largest"] == pytest.approx(dict(largest), rel=1e-5)
    # Of one part on one rank the gradient itself tells.
    assert Captured(tmp_path, "whole", Loop(rows=8)).notes("gradient_parts") == []


def test_what_the_library_loses_in_a_norm_is_no_fault(tmp_path, monkeypatch):
    """The largest gradient has 4 million elements, whose squares torch adds one by one."""
    trace, lost = tmp_path / "trace", []
    trace.mkdir()
    (trace / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    monkeypatch.setenv("TTRACE_OUT", str(trace))
    monkeypatch.setenv("TTRACE_ITERATIONS", "0:1")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 512), nn.Linear(512, 8192), nn.Linear(8192, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ttrace.attach(model, optimizer)
    for _ in range(2):
        model(torch.randn(2, 4)).square().mean().backward()
        exact = sum(p.grad.double().square().sum() for p in model.parameters()).sqrt().item()
        reported = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        lost.append(abs(reported / exact - 1))
        optimizer.step()
        optimizer.zero_grad()
    (noted,) = notes(trace, "gradient_norms")
    assert noted["iteration"] == 0 and len(noted["norms"]) == 6
    code, said = verdict(trace)
    assert code == 0, said
    if lost[0] < 1e-5:
        pytest.skip("this torch loses nothing")


class Drawing(nn.Module):
    """Draws random numbers in one block, drops values in another one, and packs rows."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.noise = Noise()
        self.drop = nn.Dropout(0.5)
        self.rnn = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x):
        x = self.drop(self.blocks[1](self.noise(self.blocks[0](x))))
        packed = nn.utils.rnn.pack_padded_sequence(
            x[:, None], torch.ones(len(x)), batch_first=True, enforce_sorted=False
        )
        rows, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return rows[:, 0]


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def test_random_numbers_that_a_module_draws_are_noted_and_those_of_dropout_not(tmp_path):
    found = Captured(tmp_path, "found", Loop(make=Drawing))
    draws = found.notes("random_draws")
    assert [(note["iteration"], note["fqn"]) for note in draws] == [(0, "noise"), (1, "noise")]
    first, second = (note["draws"] for note in draws)
    assert [draw.partition(":")[0] for draw in first] == ["0", "1", "2", "3"]
    assert not set(first) & set(second)
    again = Captured(tmp_path, "again", Loop(make=Drawing))
    assert [note["draws"] for note in again.notes("random_draws")] == [first, second]
    other = Captured(tmp_path, "other", Loop(make=Drawing, rows=4))
    assert not set(other.notes("random_draws")[0]["draws"]) & set(first)


class Gated(nn.Module):
    """Takes and gives float32; under autocast it multiplies in a lower precision."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.norm(self.cell(x, self.cell(x)))).float()


def test_the_precision_that_autocast_computes_in_inside_of_a_module_is_noted(tmp_path):
    found = Captured(tmp_path, "found", Loop(make=Gated, dtype=torch.bfloat16))
    noted = {note["fqn"]: note["dtype"] for note in found.notes("precision_inside")}
    assert noted == {"cell": "bfloat16", "head": "bfloat16"}
    plain = Captured(tmp_path, "plain", Loop(make=Gated))
    assert plain.notes("precision_inside") == []


def test_of_packed_rows_it_is_said_that_they_are_not_recorded(tmp_path):
    found = Captured(tmp_path, "found", Loop(make=Drawing))
    said = {(note["role"], note["arg"]): note["reason"] for note in found.notes("not_recorded")}
    assert set(said) == {("input", "input"), ("output", "0")}
    assert all("PackedSequence" in reason for reason in said.values())
    assert found.count(fqn="rnn", role="output", arg="1.0", leg="real") > 0


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    extra: dict


class Taker(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, WIDTH)

    def forward(self, batch, *more, **named):
        hidden = self.linear(batch.x) + more[0][0]
        return {"hidden": hidden, "pair": (more[1] * 2, named["other"]["sum"] * 1)}


class Opaque:
    def __init__(self, tensor):
        self.tensor = tensor


class Keeper(nn.Module):
    def forward(self, cache):
        return cache.tensor * 2


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, WIDTH)
        self.taker = Taker()
        self.keeper = Keeper()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        hidden = self.first(x)
        made = self.taker(
            Batch(x, {"twice": x * 2}), [hidden, "no tensor"], hidden + 1,
            other={"sum": hidden.sum(dim=1)},
        )  # fmt: skip
        return self.head(made["hidden"] + made["pair"][0] + self.keeper(Opaque(hidden)))


def test_tensors_inside_of_arguments_and_results_are_recorded(tmp_path):
    found = Captured(tmp_path, "found", Loop(make=Nested))
    args = {(key[1], key[4]) for key in found.tensors.shapes if key[0] == "taker"}
    assert args == {
        *(("input", name) for name in ("batch.x", "batch.extra.twice", "more.0.0", "more.1")),
        ("input", "other.sum"),
        *(("output", name) for name in ("hidden", "pair.0", "pair.1")),
        *(("grad_output", name) for name in ("hidden", "pair.0")),
        *(("grad_input", name) for name in ("more.0.0", "more.1")),
    }
    (note,) = found.notes("not_recorded")
    assert (note["fqn"], note["role"], note["arg"]) == ("keeper", "input", "cache")
    assert "Opaque" in note["reason"]


def test_tensors_inside_of_arguments_are_isolated(tmp_path, monkeypatch):
    loop = Loop(make=Nested)
    real = Captured(tmp_path, "real", loop)
    folder, alone = isolated(tmp_path, monkeypatch, loop, real)
    assert_aligned(real.tensors, alone, tolerance=0)
    assert not [n for n in notes(folder, "not_isolated") if n["fqn"] == "taker"]


@pytest.mark.parametrize("several", [True, False])
def test_an_iteration_ends_when_all_optimizers_have_stepped(tmp_path, several):
    def loop(out=None):
        torch.manual_seed(0)
        model = Net()
        first = torch.optim.SGD(model.first.parameters(), lr=0.1)
        rest = torch.optim.AdamW([*model.blocks.parameters(), *model.head.parameters()])
        if out:
            ttrace.attach(model, [first, rest] if several else rest, out=str(out))
        for _ in range(3):
            model(torch.randn(4, 6)).square().mean().backward()
            first.step()
            rest.step()
            first.zero_grad()
            rest.zero_grad()
        return [parameter.sum().item() for parameter in model.parameters()]

    assert loop() == loop(tmp_path / "out")
    tensors = Tensors(tmp_path / "out", tmp_path / "scratch")
    for role in ("grad_local", "grad_reduced", "param_updated"):
        for iteration in range(2):
            found = [k for k in tensors.shapes if k[1:3] == (role, iteration)]
            assert len(found) == (22 if role != "param_updated" or iteration == 0 else 0)


def test_buffers_and_the_rows_of_batch_norm_are_said(tmp_path):
    def make():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))

    found = Captured(tmp_path, "found", Loop(make=make))
    buffers = {(key[0], key[2]) for key in found.tensors.shapes if key[1] == "buffer"}
    statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    # How many forwards a rank has made depends on how the batch is cut.
    assert buffers == {(fqn, 0) for fqn in statistics} | {
        ("1.running_mean", 1),
        ("1.running_var", 1),
    }
    (note,) = found.notes("not_recorded")
    assert note["fqn"] == "1.num_batches_tracked"
    (note,) = found.notes("computation")
    assert note["value"] == 2 and "SyncBatchNorm" in note["option"]


BATCH_NORM = """
import os, torch, torch.distributed as dist, ttrace
from torch import nn
ranks = int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
if ranks > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
ttrace.attach(model, optimizer)
generator = torch.Generator().manual_seed(5)
data = torch.utils.data.TensorDataset(*(torch.randn(48, n, generator=generator) for n in (6, 4)))
micro = 4 // ranks
first = micro * dist.get_rank() if ranks > 1 else 0
mine = [16 * s + 4 * (first + m) + k for s in range(3) for m in range(micro) for k in range(4)]
batches = iter(torch.utils.data.DataLoader(data, batch_size=4, sampler=mine))
for step in range(3):
    for _ in range(micro):
        x, y = next(batches)
        loss = (model(x) - y).square().mean() / micro
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} {loss.item()!r}")
if ranks > 1:
    dist.destroy_process_group()
"""


def test_batch_norm_over_as_many_rows_is_the_same_on_two_ranks(tmp_path):
    script = tmp_path / "norm.py"
    script.write_text(BATCH_NORM)
    code, result = diff(tmp_path / "out", script, reference=script)
    assert code == 0, result["reason"]


# Two optimizers that clip and step in turn. The gradient of the one bias of the last layer is what
# two sums of 0.5 leave that cancel.
ADVERSARIES = """
import os, torch, torch.distributed as dist, ttrace
from torch import nn
ranks, rank = (int(os.environ.get(name, n)) for name, n in (("WORLD_SIZE", 1), ("RANK", 0)))
torch.manual_seed(0)
class Adversaries(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
        self.judge = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    def forward(self, z, real=None):
        made = self.generator(z)
        return self.judge(made) if real is None else (self.judge(real), self.judge(made.detach()))
model = pair = Adversaries()
if ranks > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(pair, find_unused_parameters=True)
of_generator = torch.optim.Adam(pair.generator.parameters(), 1e-3)
of_judge = torch.optim.Adam(pair.judge.parameters(), 1e-3)
ttrace.attach(model, [of_generator, of_judge])
loss_of = nn.functional.binary_cross_entropy_with_logits
for step in range(3):
    random = torch.Generator().manual_seed(step)
    z, real = (torch.randn(8, n, generator=random).chunk(ranks)[rank] for n in (16, 32))
    a, b = model(z, real)
    of_judge.zero_grad()
    (loss_of(a, torch.ones_like(a)) + loss_of(b, torch.zeros_like(b))).backward()
    nn.utils.clip_grad_norm_(pair.judge.parameters(), 0.5)
    of_judge.step()
    a = model(z)
    of_generator.zero_grad()
    loss_of(a, torch.ones_like(a)).backward()
    nn.utils.clip_grad_norm_(pair.generator.parameters(), 0.05)
    of_generator.step()
    print("step", step)
if ranks > 1:
    dist.destroy_process_group()
"""


def test_of_optimizers_that_step_in_turn_none_is_accused(tmp_path):
    script = tmp_path / "adversaries.py"
    script.write_text(ADVERSARIES)
    _, result = diff(tmp_path / "out", script, reference=script)
    assert not result["culprits"]
    # Not every micro-batch runs all of the model.
    assert result["verdict"] == "inconclusive" and "neither run has" in result["reason"]
    gradients = [t for t in result["tensors"] if t["role"] == "grad_reduced"]
    assert len(gradients) == 16


# Pairs under DistributedDataParallel: two forwards a micro-batch, read ahead, each rank its own
# rows unless they are grafted.
PAIRS = """
import os, sys, torch, torch.distributed as dist, ttrace
from torch import nn
distributed = "RANK" in os.environ
rank = 0
if distributed:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
if distributed:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
ttrace.attach(model, optimizer)
generator = torch.Generator().manual_seed(5 + rank)
left, right = (torch.randn(40, 6, generator=generator) for _ in range(2))
data = torch.utils.data.TensorDataset(left, right)

def ahead():
    held = None
    for item in torch.utils.data.DataLoader(data, batch_size=2):
        if held is not None:
            yield held
        held = item

items = ahead()
accumulate = 2 if distributed else 4
for step in range(3):
    for _ in range(accumulate):
        a, b = next(items)
        loss = (model(a) - model(b) * 0.5).square().mean() / accumulate
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    state = sum(p.double().sum().item() for p in model.parameters())
    os.write(1, f"step {step} {loss.item()!r} {norm.item()!r} {state!r}\\n".encode())
if distributed:
    dist.destroy_process_group()
"""


def test_pairs_that_are_read_ahead_align_over_ranks(tmp_path):
    script = tmp_path / "pairs.py"
    script.write_text(PAIRS)
    one, two = tmp_path / "one", tmp_path / "two"
    run(script, out=one)
    plain, _ = run(script, processes=2)
    captured, log = run(script, processes=2, out=tmp_path / "own")
    assert captured == plain and "ttrace:" not in log
    run(script, processes=2, out=two, TTRACE_GRAFT=one)
    assert all(n["differs"] for n in notes(two, "graft") if n["what"] == "data")
    assert not notes(two, "not_grafted")
    reference = Tensors(one, tmp_path / "scratch1")
    assert reference.shapes["", "output", 1, 1, "0", "forward"][1] == (8, 4)
    candidate = Tensors(two, tmp_path / "scratch2")
    assert_aligned(reference, candidate, skip=("data", "param_updated"))


@pytest.mark.matrix
@pytest.mark.parametrize("options", [["--compile"], ["--dtype", "float16"]])
def test_nanogpt_is_the_same_run_on_two_ranks(tmp_path, options):
    script = ROOT / "zoo/loops/nanogpt.py"
    plain, _ = run(script, *options, processes=2)
    captured, log = run(script, *options, processes=2, out=tmp_path / "out")
    assert captured == plain and "ttrace:" not in log


# Everything at once that could tell a captured run from another: compiled parts, both kinds of
# checkpointing, dropout, micro-batches, optimizers of their own, clipping.
EVERYTHING = """
import hashlib, os, torch, torch.distributed as dist, ttrace
from contextlib import nullcontext
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.2)
    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
    def forward(self, x):
        hidden = self.blocks[0](self.first(x))
        hidden = checkpoint(self.blocks[1], hidden, use_reentrant=False)
        hidden = checkpoint(self.blocks[2], hidden, use_reentrant=True)
        return self.head(self.blocks[3](hidden))

dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
net.blocks[0].compile(backend="aot_eager")
net.blocks[3] = torch.compile(net.blocks[3], backend="aot_eager")
model = nn.parallel.DistributedDataParallel(net)
body = [p for name, p in net.named_parameters() if not name.startswith("head")]
optimizers = [torch.optim.AdamW(body, lr=0.01), torch.optim.SGD(net.head.parameters(), lr=0.1)]
schedule = torch.optim.lr_scheduler.StepLR(optimizers[0], 1, 0.5)
ttrace.attach(model, optimizers)
torch.manual_seed(1 + dist.get_rank())
data = torch.utils.data.TensorDataset(torch.randn(24, 6), torch.randn(24, 4))
items = iter(torch.utils.data.DataLoader(data, batch_size=2, shuffle=True))
for step in range(4):
    for micro_batch in range(3):
        x, y = next(items)
        with nullcontext() if micro_batch == 2 else model.no_sync():
            loss = nn.functional.mse_loss(model(x), y) / 3
            loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    schedule.step()
    state = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for tensor in (*net.parameters(), *(v for o in optimizers for s in o.state.values()
                                        for v in s.values() if torch.is_tensor(v))):
        state.update(tensor.detach().numpy().tobytes())
    line = f"step {step} {dist.get_rank()} {loss.item()!r} {norm.item()!r} {state.hexdigest()}\\n"
    os.write(1, line.encode())
dist.destroy_process_group()
"""


def test_record_changes_no_bit_under_compile_checkpoints_and_two_optimizers(tmp_path):
    script, out = tmp_path / "everything.py", tmp_path / "out"
    script.write_text(EVERYTHING)
    plain, _ = run(script, processes=2)
    assert len(plain) == 8
    done = subprocess.run(
        [sys.executable, "-m", "ttrace._cli", "record", "-o", str(out), "--legs", "replay,noise:1",
         "--", *launcher(2), str(script)],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"^step .*$", done.stdout, re.MULTILINE)) == plain
    records = [e for e in entries(out) if e["type"] == "record"]
    assert {e["iteration"] for e in records} == {0, 1}
    assert {e["micro_batch"] for e in records} >= set(range(6))
    assert not notes(out, "unsupported") and not notes(out, "stopped")


def test_inputs_that_are_parts_of_the_batch_are_compared_with_their_own_rows(tmp_path):
    script = ROOT / "zoo/loops/pytorch_sequence_parallel.py"
    other = tmp_path / "other.py"
    other.write_text(script.read_text().replace("manual_seed(0)", "manual_seed(1)"))
    reference, same, others = (tmp_path / name for name in ("reference", "same", "others"))
    run(script, processes=2, out=reference)
    run(script, processes=2, out=same, TTRACE_GRAFT=reference)
    assert not notes(same, "not_grafted")
    assert {n["differs"] for n in notes(same, "graft") if n["what"] == "data"} == {0}
    run(other, processes=2, out=others, TTRACE_GRAFT=reference)
    assert {n["differs"] for n in notes(others, "graft") if n["what"] == "data"} == {1}
    assert {n["fqn"] for n in notes(others, "not_grafted")} == {"x"}


REFUSED = """
import os, sys, torch, torch.distributed as dist, ttrace
from torch import nn
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
case = sys.argv[1]
if case == "fsdp":
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
if case == "part":
    model[0] = nn.parallel.DistributedDataParallel(model[0])
if case == "ignored":
    DDP = nn.parallel.DistributedDataParallel
    DDP._set_params_and_buffers_to_ignore_for_model(model, ["1.weight"])
    model = DDP(model)
if case == "localized":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel
    from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tp"))
    plan = {"0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()}
    parallel.parallelize_module(model, mesh["tp"], plan)
    _pre_dp_module_transform(model)
    model = nn.parallel.DistributedDataParallel(model, process_group=mesh["data"].get_group())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ttrace.attach(model, optimizer)
for step in range(2):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("step done", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("fsdp", "FSDP2"),
        ("part", "DistributedDataParallel around a part"),
        ("none", "2 ranks without DistributedDataParallel"),
        ("ignored", "DistributedDataParallel is told to ignore"),
        ("localized", "DistributedDataParallel over DTensors"),
    ],
)
def test_what_cannot_be_captured_is_named_with_a_way_out(tmp_path, case, what):
    script = tmp_path / "script.py"
    script.write_text(REFUSED)
    _, log = run(script, case, processes=2, out=tmp_path / "out")
    found = notes(tmp_path / "out", "unsupported")
    assert {what in note["what"] for note in found} == {True}
    assert all(note["reason"] and note["way_out"] for note in found)
    assert len(re.findall(r"capture stopped", log)) == 2


BESIDE = """
import copy, torch, ttrace
from torch import nn
model, other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), nn.Linear(3, 3)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ttrace.attach(model, optimizer)
ttrace.attach(other, torch.optim.SGD(other.parameters(), lr=0.1))
for step in range(2):
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
print("step done", flush=True)
"""


def test_modules_beside_the_model_are_named(tmp_path):
    """A copy of it once; another model that was attached is not supported."""
    script = tmp_path / "script.py"
    script.write_text(BESIDE)
    run(script, out=tmp_path / "out", PYTHONPATH=Path(ttrace.__file__).parent / "hook")
    (note,) = notes(tmp_path / "out", "modules_beside")
    assert note == {"count": 1, "classes": ["Sequential"]}
    (note,) = notes(tmp_path / "out", "unsupported")
    assert note["what"] == "a second model (Linear)"
    assert note["reason"] and note["way_out"]
    assert [e["iteration"] for e in entries(tmp_path / "out") if e["type"] == "seal"] == [0, 1]


QUANTISED = """
import torch, ttrace
from torch import nn
class Float8Linear(nn.Linear):
    pass
model = nn.Sequential(nn.Linear(4, 4), Float8Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ttrace.attach(model, optimizer)
for step in range(2):
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
print("step done", flush=True)
"""


def test_modules_that_quantise_are_named_and_the_run_is_captured(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(QUANTISED)
    run(script, out=tmp_path / "out")
    (note,) = notes(tmp_path / "out", "unsupported")
    assert note["what"] == "Float8Linear (1)"
    assert note["reason"] and note["way_out"]
    assert [e["iteration"] for e in entries(tmp_path / "out") if e["type"] == "seal"] == [0, 1]


GATHERED = """
import sys, torch, torch.distributed as dist, torch.distributed.nn.functional as together, ttrace
from torch import nn
dist.init_process_group("gloo")
dim = int(sys.argv[1])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        count = torch.tensor(float(len(x)))
        dist.all_reduce(count)
        every = torch.cat(together.all_gather(self.first(x)), dim)
        return (self.last(x) @ every.flatten(0, 1).t() / count).square().mean()
model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ttrace.attach(model, optimizer)
for step in range(2):
    model(torch.randn(2, 3, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
print("step done", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("dim", "cut"), [(1, True), (0, False)])
def test_rows_that_a_forward_cuts_among_data_parallel_ranks_are_named(tmp_path, dim, cut):
    """And a gather of whole rows is not, nor a count that is added up."""
    script = tmp_path / "script.py"
    script.write_text(GATHERED)
    run(script, str(dim), processes=2, out=tmp_path / "out")
    found = notes(tmp_path / "out", "unsupported")
    assert len(found) == (2 if cut else 0), "one for each rank"
    assert all("the model gathers tensors along dimension 1" in note["reason"] for note in found)
