"""What a loop computes between its model's outputs and a backward is recorded as calls, and only
those that lead to a gradient are made again."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ttrace.adapters.torch.repeat.ambient import Ambient, AutocastCaches
from ttrace.adapters.torch.repeat.calls_of_torch import CallsOfTorch
from ttrace.adapters.torch.repeat.followed_memory import Memories
from ttrace.adapters.torch.repeat.kept_tensors import kept_in
from ttrace.adapters.torch.repeat.needed import needed, takes_number
from ttrace.adapters.torch.repeat.play import NotTheSame, play
from ttrace.adapters.torch.repeat.swapped_parameters import swapped_parameters
from ttrace.adapters.torch.repeat.tape import Kind, Tape
from ttrace.capture.nested import tensors_in
from ttrace.capture.patches import Patches


class Recorded:
    """One iteration of a loop over a linear layer, recorded."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3)
        self.tape = Tape(self.model.parameters(), partial(kept_in, [self.model]))
        self.patches = Patches()
        self.calls = CallsOfTorch(self.patches, self._call, lambda: None)
        self.leaves = {id(p): p for p in self.model.parameters()}

    def __enter__(self) -> Recorded:
        self.calls.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.calls.end()
        self.patches.undo()

    def _call(self, name, function, args, kwargs, is_collective):
        if name == "backward" or not self.tape.concerns(tensors_in((args, kwargs))):
            return function(*args, **kwargs)
        begun = self.tape.begin_call(Kind.CALL, name, function, args, kwargs, Ambient.now())
        result = function(*args, **kwargs)
        self.tape.end_call(*begun, result, tensors_in(result))
        return result

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        begun = self.tape.begin_call(
            Kind.MODEL, "model", self.model, (given,), {}, Ambient.now().with_python()
        )
        with self.calls.apart():
            output = self.model(given)
        self.tape.end_call(*begun, output, [output])
        return output

    def backward(self, loss: torch.Tensor) -> None:
        function = torch.autograd.backward
        event, _ = self.tape.begin_call(
            Kind.BACKWARD, "backward", function, (loss,), {}, Ambient.now()
        )
        event.starts = {key: "absent" for key in self.leaves}
        with self.calls.apart():
            loss.backward()
            self.tape.end_backward(event, self.leaves)

    def events(self):
        left = self.tape.slots_of(p.grad for p in self.model.parameters())
        return needed(self.tape.events, self.tape.memory, left)

    def again(self) -> list[torch.Tensor]:
        """Gradients of a rerun."""
        events = self.events()
        with swapped_parameters(self.model) as others:
            play(
                events, self.leaves, alone=lambda: None, reduce=lambda: None,
                give_out=lambda *_: None, step=lambda kept: [],
                autocast=True, in_place_of=others,
            )  # fmt: skip
            return [others[key].grad for key in self.leaves]

    def same(self) -> bool:
        """As the loop left them, which a rerun does not touch."""
        before = [p.grad for p in self.model.parameters()]
        values = [gradient.clone() for gradient in before]
        found = self.again()
        assert all(p.grad is b for p, b in zip(self.model.parameters(), before, strict=True))
        assert all(map(torch.equal, before, values))
        return all(map(torch.equal, values, found))


def test_only_what_leads_to_a_gradient_is_made_again():
    total, seen = torch.zeros(()), []
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        seen.append(output.argmax(-1).tolist())
        loss = output.square().mean()
        total += loss.detach()
        loss.log().exp()
        loop.backward(loss)
    names = [event.name for event in loop.events()]
    assert names == ["model", "square", "mean", "backward"]
    value = float(total)
    assert loop.same()
    assert float(total) == value


def test_a_total_that_begins_with_zero_and_a_slice_that_is_written_are_followed():
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        each = output.square()
        each[1:3] = 0.0
        view = each.view(-1)
        view[:2].mul_(3.0)
        total = torch.zeros(())
        total += each.sum()
        loop.backward(total / 2)
    assert loop.same()


def test_what_the_loop_does_to_gradients_is_made_again():
    with Recorded() as loop:
        loop.backward(loop.forward(torch.randn(5, 4)).square().sum())
        nn.utils.clip_grad_value_(loop.model.parameters(), 0.5)
        loop.model.bias.grad = loop.model.bias.grad / 3
        loop.model.weight.grad.data.mul_(0.5)
    assert loop.same()


def test_gradients_that_a_scaler_divides_are_divided_again():
    """torch does not count this change of theirs."""
    with Recorded() as loop:
        loop.backward(loop.forward(torch.randn(5, 4)).square().sum())
        found, inverse = torch.zeros(1), torch.full((1,), 0.25)
        gradients = [p.grad for p in loop.model.parameters()]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
    assert loop.same()
    assert float(found) == 0


def test_random_numbers_of_a_loss_are_drawn_again():
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        torch.rand(7)
        noise = torch.rand_like(output)
        loop.backward(nn.functional.dropout(output * noise, 0.5).square().sum())
    assert loop.same()


def test_functions_with_a_backward_of_their_own_are_calls():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return (value + value).exp().log()

        @staticmethod
        def backward(ctx, gradient):
            return 2 * gradient

    with Recorded() as loop:
        loop.backward(Doubled.apply(loop.forward(torch.randn(5, 4))).square().sum())
    assert [event.name for event in loop.events()].count("Doubled") == 1
    assert loop.same()
    assert "apply" in vars(torch.autograd.Function)
    assert Doubled.apply.__func__ is torch.autograd.Function.apply.__func__


def test_a_function_of_torch_that_somebody_has_replaced_is_called_once(monkeypatch):
    original, calls = nn.functional.cross_entropy, []

    def replaced(*args, **kwargs):
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(nn.functional, "cross_entropy", replaced)
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        loop.backward(nn.functional.cross_entropy(output, torch.tensor([0, 1, 2, 0, 1])))
    assert calls == [1]
    assert loop.same()


def test_modes_of_the_users_may_begin_before_and_end_within():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        loop = Recorded()
        loop.calls.begin()
        output = loop.forward(torch.randn(5, 4))
    loss = output.square().sum()
    with Mode():
        loop.backward(loss)
        loop.calls.end()
        assert torch._C._len_torch_function_stack() == 1
    loop.patches.undo()
    assert torch._C._len_torch_function_stack() == 0
    assert loop.same()


def test_nothing_is_seen_within_the_model_after_a_backward_that_was():
    """torch keeps a mode out of the way of its handler, and puts it back."""
    depths = []
    with Recorded() as loop:
        loop.model.register_forward_hook(
            lambda *_: depths.append(torch._C._len_torch_function_stack())
        )
        for _ in range(2):
            loss = loop.forward(torch.randn(5, 4)).square().sum()
            with torch.enable_grad():
                loop.calls._call("backward", loop.backward, (loss,), {})
    assert depths == [0, 0]
    assert torch._C._len_torch_function_stack() == 0


def test_a_tensor_that_was_made_elsewhere_is_named():
    other = nn.Linear(4, 3)
    apart = other(torch.randn(5, 4))
    with Recorded() as loop:
        loop.backward((loop.forward(torch.randn(5, 4)) + apart).square().sum())
    problems = [event.problem for event in loop.events() if event.problem]
    assert "computed where it cannot be seen (AddmmBackward0, of shape [5, 3])" in problems[0]


def test_a_tensor_that_the_model_keeps_is_read_from_where_it_lies():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.extra = {}

        def forward(self, given):
            output = self.linear(given)
            self.penalty, self.extra["norm"] = output.abs().mean(), output.square().mean()
            return output

    with Recorded() as loop:
        loop.model = Keeps()
        loop.tape = Tape(loop.model.parameters(), partial(kept_in, [loop.model]))
        loop.leaves = {id(p): p for p in loop.model.parameters()}
        output = loop.forward(torch.randn(5, 4))
        loop.backward(output.sum() + loop.model.penalty + loop.model.extra["norm"])
    assert loop.same()


def test_what_was_changed_since_cannot_be_given_again():
    target = torch.randn(5, 3)
    with Recorded() as loop:
        loop.backward((loop.forward(torch.randn(5, 4)) - target).square().sum())
    target.zero_()
    with pytest.raises(NotTheSame, match="sub: the loop has changed a tensor"):
        loop.again()


def test_a_change_of_a_parameter_is_not_made_again():
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        with torch.no_grad():
            loop.model.weight.mul_(output.detach().mean())
        loop.backward(output.sum() + loop.model.weight.sum())
    assert any("changes" in event.problem for event in loop.events())


def test_a_number_that_goes_into_the_loss_is_noticed():
    with Recorded() as loop:
        loss = loop.forward(torch.randn(5, 4)).square().sum()
        loop.backward(loss / loss.item())
    assert takes_number(loop.events(), loop.tape.numbers)
    with Recorded() as loop:
        loss = loop.forward(torch.randn(5, 4)).square().sum()
        loss.item()
        loop.backward(loss / 7.0)
    assert not takes_number(loop.events(), loop.tape.numbers)


@pytest.mark.parametrize("cached", [True, False])
def test_casts_that_autocast_keeps_are_kept_again(cached):
    with Recorded() as loop:
        loop.patches.wrap_call(torch, "clear_autocast_cache", AutocastCaches.cleared)
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
            first, second = loop.forward(torch.randn(5, 4)), loop.forward(torch.randn(5, 4))
            loss = first.float().square().sum() + second.float().abs().sum()
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
            loss = loss + loop.forward(torch.randn(5, 4)).float().sum()
        loop.backward(loss)
    assert loop.same()


def test_recurrent_modules_compute_with_the_other_parameters():
    lstm = nn.LSTM(3, 2)
    before = list(lstm._flat_weights)
    with swapped_parameters(lstm) as others:
        assert all(a is others[id(b)] for a, b in zip(lstm._flat_weights, before, strict=True))
        assert all(
            p.data_ptr() == q.data_ptr() for p, q in zip(lstm.parameters(), before, strict=True)
        )
    assert all(a is b for a, b in zip(lstm._flat_weights, before, strict=True))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.exp()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


twice = Twice.apply  # before anything is watched


def problems(loop):
    return [event.problem for event in loop.events() if event.problem]


def test_a_function_that_was_bound_before_is_named_also_where_it_has_no_weight():
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        loop.backward(output.square().sum() + 0.0 * twice(output).mean())
    assert "computed where it cannot be seen (TwiceBackward" in problems(loop)[0]


def test_an_output_that_begins_a_graph_of_its_own_is_followed():
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        apart = output.detach().requires_grad_()
        (slope,) = torch.autograd.grad(apart.exp().sum(), apart)
        loop.backward((output * slope).sum())
    assert problems(loop) == []
    assert loop.same()


def test_gradients_that_are_views_are_not_followed_through_what_they_are_views_of():
    loop = Recorded()
    flat = torch.zeros(15)
    loop.model.weight.grad, loop.model.bias.grad = flat[:12].view(3, 4), flat[12:]
    with loop:
        loop.backward(loop.forward(torch.randn(5, 4)).square().sum())
        flat.clamp_(-0.5, 0.5)
    assert (
        "clamp_ is given a tensor of the loop's own, of shape [15], which shares"
        in (problems(loop)[0])
    )


def test_gradients_that_pass_through_parts_of_a_buffer_are_not_followed():
    buffer = torch.zeros(20)
    with Recorded() as loop:
        loop.backward(loop.forward(torch.randn(5, 4)).square().sum())
        buffer[2:5].copy_(loop.model.bias.grad)
        buffer.mul_(0.5)
        loop.model.bias.grad.copy_(buffer[2:5])
    assert "of shape [20], which shares memory" in problems(loop)[0]


def test_statistics_and_generators_of_the_loops_own_are_not_changed_again():
    norm = nn.BatchNorm1d(3, affine=False)
    with Recorded() as loop:
        loop.backward(norm(loop.forward(torch.randn(5, 4))).exp().sum())
    assert "batch_norm changes a tensor of the loop's own" in problems(loop)
    norm.eval()
    with Recorded() as loop:
        loop.backward(norm(loop.forward(torch.randn(5, 4))).exp().sum())
    assert problems(loop) == []
    generator = torch.Generator()
    with Recorded() as loop:
        output = loop.forward(torch.randn(5, 4))
        mask = output.detach().sigmoid().bernoulli(generator=generator)
        loop.backward((output * mask).sum())
    assert problems(loop) == ["bernoulli is given a generator of the loop's own"]


def test_a_model_may_change_what_it_is_given():
    class Doubles(nn.Linear):
        def forward(self, given):
            return super().forward(given.mul_(2))

    with Recorded() as loop:
        loop.model = Doubles(4, 3)
        loop.tape = Tape(loop.model.parameters(), partial(kept_in, [loop.model]))
        loop.leaves = {id(p): p for p in loop.model.parameters()}
        loop.backward(loop.forward(torch.randn(5, 4)).square().sum())
    assert loop.same()
    assert loop.same()


def test_a_loss_scale_is_taken_off_again():
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with Recorded() as loop:
        optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.1)
        loop.backward(scaler.scale(loop.forward(torch.randn(5, 4)).square().sum()))
        scaler.unscale_(optimizer)
    assert loop.same()


def test_memory_that_was_freed_is_not_that_of_its_successor():
    memories = Memories()
    first = torch.ones(1 << 12)
    address = first.data_ptr()
    number = memories.number(first)
    assert memories.number(first[3:]) == number, "a view lies in the same"
    del first
    for _ in range(1000):
        other = torch.ones(1 << 12)
        assert memories.number(other) != number
        if other.data_ptr() == address:
            return
    pytest.skip("the allocator gave no address out again")
