"""The hooks on small modules with shapes of graph that break careless hooks."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from index_lines import read_lines
from ttrace.capture.module_hooks import Arguments, ModuleHooks
from ttrace.capture.placed import Batch, ModuleRule, Moment, TensorRule
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings

ROWS = TensorRule(batch_dim=0)


class FanOut(nn.Module):
    """Uses its input five times, through modules and without."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        return self.a(x) * 1e4 + self.b(x) * 1e-3 + torch.sin(self.c(x)) + x * x + x


class InPlace(nn.Module):
    """Modifies its input."""

    def forward(self, x):
        return x.mul_(1.5).relu_() + 0.1


class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.fan = FanOut(width)
        self.place = InPlace()
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        hidden = self.first(x)
        hidden = self.fan(hidden) + hidden
        return self.last(self.place(hidden * 1e-4))


NAMES = {
    "first": "input",
    "fan": "x",
    "fan.a": "input",
    "fan.b": "input",
    "fan.c": "input",
    "place": "x",
    "last": "input",
}


def train(model, steps=3, around=None):
    """Losses and final parameters. `around` sees the model's forward and its backward."""
    generator = torch.Generator().manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        x = torch.randn(8, 16, generator=generator, requires_grad=True)
        if around:
            around.begin(step)
        loss = model(x).square().mean()
        if around:
            around.end_forward()
        loss.backward()
        losses.append(loss.detach().clone())
        optimizer.step()
        optimizer.zero_grad()
    return losses, [p.detach().clone() for p in model.parameters()]


class Capture:
    def __init__(self, model, folder):
        (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
        self.folder = folder
        self.session = Session(Settings(out=str(folder)))
        self.session.start(0, 1, [("tp", 1)], [0], {})
        self.hooks = ModuleHooks(self.session)
        modules = dict(model.named_modules())
        for name, argument in NAMES.items():
            self.hooks.install(modules[name], name, ModuleRule({argument: ROWS}, {"0": ROWS}))

    def begin(self, step):
        self.hooks.flush()
        self.session.now.begin_forward(Moment(step, "real", 0, Batch(8, 8, 1, (1, 1))))

    def end_forward(self):
        self.session.now.end_forward()

    def records(self):
        self.hooks.flush()
        self.session.finish()
        return recorded(self.folder)


def recorded(folder):
    """(fqn, role) -> values, of iteration 0."""
    rank = folder / "rank-00000.r0"
    found = {}
    for entry in read_lines(rank / "index.jsonl"):
        if entry["type"] != "record" or entry["iteration"] != 0:
            continue
        segment = rank / f"segment-{entry['segment']:05d}.safetensors"
        data = segment.read_bytes()[entry["offset"] : entry["offset"] + entry["bytes"]]
        values = torch.frombuffer(bytearray(data), dtype=torch.float32)
        found[entry["fqn"], entry["role"]] = values.reshape(entry["shape"])
    return found


def make_model():
    torch.manual_seed(1)
    return Model()


def test_hooks_change_no_bit(tmp_path):
    plain = train(make_model())
    model = make_model()
    captured = train(model, around=Capture(model, tmp_path))
    for a, b in zip(plain[0] + plain[1], captured[0] + captured[1], strict=True):
        assert torch.equal(a, b)


def test_every_gradient_is_that_of_its_own_module(tmp_path):
    model = make_model()
    capture = Capture(model, tmp_path)
    train(model, steps=1, around=capture)
    records = capture.records()

    # The same by torch.autograd.grad, on tensors cut at the module's border.
    model = make_model()
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(3), requires_grad=True)
    hidden = model.first(x)
    border = hidden.clone()
    fan = model.fan(border)
    scaled = ((fan + hidden) * 1e-4).clone()
    placed = model.place(scaled * 1)
    loss = model.last(placed).square().mean()
    into_fan, out_of_fan, into_last = torch.autograd.grad(loss, [border, fan, placed])
    for name, role, expected in (
        ("fan", "grad_input", into_fan),
        ("fan", "grad_output", out_of_fan),
        ("last", "grad_input", into_last),
        ("place", "grad_output", into_last),
    ):
        torch.testing.assert_close(records[name, role], expected, rtol=1e-6, atol=0, msg=name)
    # Of an input that is modified in place too: 1.5 where the unit is on.
    expected = into_last * 1.5 * (scaled > 0)
    torch.testing.assert_close(records["place", "grad_input"], expected, rtol=1e-6, atol=0)


def test_all_points_are_recorded(tmp_path):
    model = make_model()
    capture = Capture(model, tmp_path)
    train(model, steps=1, around=capture)
    roles = ("input", "output", "grad_input", "grad_output")
    assert set(capture.records()) == {(name, role) for name in NAMES for role in roles}


def notes_of(folder, kind):
    entries = read_lines(folder / "rank-00000.r0" / "index.jsonl")
    return [e["data"] for e in entries if e["type"] == "note" and e["kind"] == kind]


@pytest.mark.parametrize("release", ["fp8", "quantization"])
def test_fp8_that_a_context_switches_on_is_named_once(tmp_path, monkeypatch, release):
    """With a module of TransformerEngine's name, which cannot be installed everywhere."""
    manager = SimpleNamespace(on=False)
    manager.is_fp8_enabled = lambda: manager.on
    library = SimpleNamespace(FP8GlobalStateManager=manager)
    monkeypatch.setitem(sys.modules, f"transformer_engine.pytorch.{release}", library)
    model = make_model()
    capture = Capture(model, tmp_path)
    train(model, steps=1, around=capture)
    assert not capture.session.has_seen("fp8")

    def autocast(module, args):
        manager.on = True

    def leave(module, args, output):
        manager.on = False

    model.fan.register_forward_pre_hook(autocast)
    model.fan.register_forward_hook(leave)
    train(model, steps=2, around=capture)
    capture.records()
    (note,) = notes_of(tmp_path, "unsupported")
    assert note["what"] == "fp8"
    assert "without FP8" in note["way_out"]


@pytest.mark.parametrize(("fp8", "seen"), [(False, False), (True, True)])
def test_a_linear_with_an_fp8_recipe_of_its_own_is_named(tmp_path, fp8, seen):
    """TransformerEngine's, which notes within its forward whether it quantises."""
    model = make_model()
    model.first.fp8_meta = {}
    model.first.register_forward_pre_hook(lambda module, args: setattr(module, "fp8", fp8))
    capture = Capture(model, tmp_path)
    train(model, steps=1, around=capture)
    assert capture.session.has_seen("fp8") is seen


def test_a_linear_that_calls_something_else_fp8_is_not_quantised(tmp_path):
    model = make_model()
    model.first.fp8 = True
    capture = Capture(model, tmp_path)
    train(model, steps=1, around=capture)
    assert not capture.session.has_seen("fp8")


def test_nothing_is_read_while_a_cuda_graph_is_captured(tmp_path, monkeypatch):
    plain = train(make_model(), steps=2)
    model = make_model()
    capture = Capture(model, tmp_path)
    capturing = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(capturing))
    model.fan.register_forward_pre_hook(lambda module, args: capturing.append(1), prepend=True)
    model.fan.register_forward_hook(lambda module, args, output: capturing.clear(), prepend=True)
    captured = train(model, steps=2, around=capture)
    for a, b in zip(plain[0] + plain[1], captured[0] + captured[1], strict=True):
        assert torch.equal(a, b)
    assert {fqn for fqn, _ in capture.records()} == {"first", "place", "last"}
    (note,) = notes_of(tmp_path, "unsupported")
    assert note["what"] == "CUDA graphs"


def test_a_failing_question_for_graphs_ends_capture_and_not_training(tmp_path, monkeypatch, capsys):
    def fail():
        raise RuntimeError("no driver")

    capture = Capture(model := make_model(), tmp_path)
    monkeypatch.setattr(torch.cuda, "is_initialized", fail)
    train(model, steps=1, around=capture)
    assert capture.session.over
    assert "no driver" in capsys.readouterr().err


def test_a_failing_hook_ends_capture_and_not_training(tmp_path, capsys):
    plain = train(make_model())
    model = make_model()
    capture = Capture(model, tmp_path)
    calls = []

    def broken(*args, **kwargs):
        calls.append(1)
        raise RuntimeError("no luck")

    capture.session.record_at = broken
    captured = train(model, around=capture)
    assert all(torch.equal(a, b) for a, b in zip(plain[1], captured[1], strict=True))
    assert len(calls) == 1
    error = capsys.readouterr().err
    assert error.count("capture stopped: RuntimeError: no luck; training continues") == 1
    assert read_lines(tmp_path / "rank-00000.r0" / "index.jsonl")[-1]["complete"] is False


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_noise_moves_values_by_one_unit_and_gradients_pass(tmp_path, dtype):
    from ttrace.capture.noise import Noise

    model = nn.Linear(16, 4).to(dtype)
    (tmp_path / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    session = Session(Settings(out=str(tmp_path)))
    session.start(0, 1, [("tp", 1)], [0], {})
    hooks = ModuleHooks(session, rewrite=Noise(session, 1))
    hooks.install(model, "linear", ModuleRule({}, {"0": ROWS}))
    x = torch.ones(8, 16, dtype=dtype, requires_grad=True)
    exact = model(x)
    session.now.begin_forward(Moment(0, "real", 0, Batch(8, 8, 1, (1, 1))))
    noisy, again = model(x), model(x)
    unit = torch.finfo(dtype).eps / 2
    relative = ((noisy - exact) / exact).float().abs()
    assert 0 < relative.max() <= 2 * unit * 1.01
    # A second call is another point of the run, with other noise.
    assert not torch.equal(noisy, again)
    state = torch.get_rng_state()
    noisy.sum().backward()
    assert x.grad is not None and torch.equal(state, torch.get_rng_state())
    session.finish()


def test_a_rewritten_gradient_reaches_the_outermost_module_first(tmp_path):
    """Two modules hand the same tensor on: the inner one must not see what arrived at the outer."""
    from ttrace.capture.rewrite import Rewrite

    seen = {}

    class Ones(Rewrite):
        def passed_on(self, place, gradient):
            seen[place.fqn] = gradient.clone()
            return torch.ones_like(gradient)

    model = nn.Sequential(nn.Linear(4, 4))
    (tmp_path / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    session = Session(Settings(out=str(tmp_path)))
    session.start(0, 1, [("tp", 1)], [0], {})
    hooks = ModuleHooks(session, rewrite=Ones())
    hooks.install(model[0], "outer.inner", ModuleRule({}, {"0": ROWS}))
    hooks.install(model, "outer", ModuleRule({}, {"0": ROWS}))
    session.now.begin_forward(Moment(0, "real", 0, Batch(8, 8, 1, (1, 1))))
    (model(torch.ones(8, 4)) * 5).sum().backward()
    assert torch.equal(seen["outer"], torch.full((8, 4), 5.0))
    assert torch.equal(seen["outer.inner"], torch.ones(8, 4))
    assert torch.equal(model[0].weight.grad, torch.full((4, 4), 8.0))
    session.finish()


@pytest.mark.parametrize("shape", [(8, 16), (8, 4, 4)])
def test_the_gradient_of_a_view_that_a_module_changes_in_place(tmp_path, shape):
    """Megatron's softmax masks its scores, which are a view of a product, in place."""
    masked = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.3

    class Softmax(nn.Module):
        def forward(self, scores):
            return torch.softmax(scores.masked_fill_(masked, -1e4), -1)

    def loss(x, softmax):
        return softmax((x * 3).view(shape)).square().sum()

    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    (want,) = torch.autograd.grad(loss(x, Softmax()), x)
    model = Softmax()
    (tmp_path / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    session = Session(Settings(out=str(tmp_path)))
    session.start(0, 1, [("tp", 1)], [0], {})
    hooks = ModuleHooks(session)
    hooks.install(model, "softmax", ModuleRule({"scores": ROWS}, {"0": ROWS}))
    session.now.begin_forward(Moment(0, "real", 0, Batch(8, 8, 1, (1, 1))))
    value = loss(x, model)
    session.now.end_forward()
    value.backward()
    hooks.flush()
    session.finish()
    assert torch.equal(x.grad, want)
    found = recorded(tmp_path)["softmax", "grad_input"]
    assert found.shape == shape
    assert torch.equal(found.reshape(8, 16) * 3, want)


def test_a_module_that_returns_its_parameter_is_noted_once(tmp_path):
    class Biased(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x, self.weight), self.bias

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Biased(4, 4)

        def forward(self, x):
            return self.inner(x)

    model = Around()
    (tmp_path / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    session = Session(Settings(out=str(tmp_path)))
    session.start(0, 1, [("tp", 1)], [0], {})
    hooks = ModuleHooks(session)
    hooks.install(model.inner, "inner", ModuleRule({}, {"0": ROWS}))
    hooks.install(model, "", ModuleRule({}, {"0": ROWS}))
    session.now.begin_forward(Moment(0, "real", 0, Batch(8, 8, 1, (1, 1))))
    for _ in range(2):
        model(torch.ones(8, 4))
    session.finish()
    lines = read_lines(tmp_path / "rank-00000.r0" / "index.jsonl")
    notes = [e["data"] for e in lines if e.get("kind") == "hands_out"]
    assert notes == [
        {"fqn": "inner", "arg": "1", "parameter": "bias"},
        {"fqn": "", "arg": "1", "parameter": ""},
    ]


def test_a_wrapper_that_takes_anything_hides_no_name():
    module = FanOut(4)
    names = Arguments.of(module)
    assert names == Arguments(("x",))
    inner = module.forward
    module.forward = lambda *args, **kwargs: inner(*args, **kwargs)
    assert Arguments.of(module) == names
    # One that says what it takes is asked itself.
    module.forward = lambda hidden, *rest: inner(hidden)
    assert Arguments.of(module) == Arguments(("hidden",), "rest")
