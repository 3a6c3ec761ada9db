"""Where a plain tensor and its gradient lie in a model that DTensors cut: as DTensor.to_local() was
told, or, of an input that nothing is said of, everywhere alike."""

from types import SimpleNamespace

import pytest
import torch

from captured_run import compared, index
from test_torch_native import Tensors, run, topology_of, two_ranks  # noqa: F401
from ttrace.adapters.torch.dtensors import Unplaceable
from ttrace.adapters.torch.hooks import DTensorIsolation, DTensorNoise, placed
from ttrace.adapters.torch.placement import Provenance
from ttrace.capture.placed import Batch, Moment, TensorRule
from ttrace.capture.rewrite import Place

# Two matrices are cut by hand, on local tensors. The activation between them and what comes before
# is the same on both ranks; its gradient is a term of a sum, and is declared to be one.
BY_HAND = """
import os, sys
import torch, torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.Tanh()
        self.up = nn.Parameter(torch.randn(16, 32) / 4)
        self.down = nn.Parameter(torch.randn(32, 16) / 6)
    def forward(self, x):
        up, down = [w.to_local() if isinstance(w, DTensor) else w for w in (self.up, self.down)]
        return torch.tanh(self.act(x) @ up) @ down

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.cut = nn.Linear(16, 16), Cut()
    def forward(self, x):
        h = self.first(x)
        if mesh is None:
            return self.cut(h)
        declared = None if "bug" in sys.argv else [Partial()]
        h = DTensor.from_local(h, mesh, [Replicate()], run_check=False)
        made = self.cut(h.to_local(grad_placements=declared))
        return DTensor.from_local(made, mesh, [Partial()], run_check=False).full_tensor()

mesh = None
torch.manual_seed(0)
net = Net()
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    net.cut.up = nn.Parameter(distribute_tensor(net.cut.up.data, mesh, [Shard(1)]))
    net.cut.down = nn.Parameter(distribute_tensor(net.cut.down.data, mesh, [Shard(0)]))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ttrace.attach(net, optimizer)
g = torch.Generator().manual_seed(1)
for step in range(2):
    loss = 0
    for _ in range(2):
        loss = net(torch.randn(8, 16, generator=g)).pow(2).mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    sys.stdout.write(f"step {step} {loss.item()}\\n")  # at once: ranks share it
if mesh is not None:
    dist.destroy_process_group()
"""


def test_the_gradient_lies_as_the_call_declares(two_ranks):  # noqa: F811
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    def handed_on(placement, declared=None):
        local = torch.ones(4, 6, requires_grad=True)
        whole = DTensor.from_local(local, two_ranks, [placement])
        return whole.to_local(grad_placements=declared)

    known = Provenance(topology_of(two_ranks))
    plain, term = handed_on(Replicate()), handed_on(Replicate(), [Partial()])
    part = handed_on(Shard(0))
    term_of_whole = "tp:Partial(sum)"
    assert [known.gradient_placements(t) for t in (plain, part)] == ["", "tp:Shard(0)"]
    assert known.gradient_placements(term) == term_of_whole
    assert known.placements(term) == "", "the values are the same on all ranks"
    # Everything that is made of it, up to the next DTensor.
    for made in (term.tanh() * 2, term.transpose(0, 1).softmax(-1), term + term.detach()):
        assert known.gradient_placements(made) == term_of_whole
    weight = torch.ones(6, requires_grad=True)
    assert known.gradient_placements(term * weight) == term_of_whole
    assert known.gradient_placements(handed_on(Shard(0), [Shard(0)])) == "tp:Shard(0)"
    # A norm's weight, broadcast to a part of the sequence: its own gradient is a term.
    scaled = part * handed_on(Replicate(), [Partial()])[0]
    assert known.placements(scaled) == known.gradient_placements(scaled) == "tp:Shard(0)"
    # Two calls that contradict each other; a declaration that cannot be true of these shapes.
    for unknown in (plain + term, handed_on(Shard(0), [Replicate()])):
        assert known.placements(unknown) in ("", "tp:Shard(0)")
        with pytest.raises(Unplaceable):
            known.gradient_placements(unknown)


def test_of_what_a_function_with_its_own_backward_makes_nothing_is_known(two_ranks):  # noqa: F811
    from torch.distributed.tensor import DTensor, Replicate

    class SumOfGradients(torch.autograd.Function):  # as Megatron's copy to its parallel region
        @staticmethod
        def forward(ctx, tensor):
            return tensor.view_as(tensor)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    known = Provenance(topology_of(two_ranks))
    local = torch.ones(4, 6, requires_grad=True)
    whole = DTensor.from_local(local, two_ranks, [Replicate()]).to_local()
    with pytest.raises(Unplaceable, match="SumOfGradients"):
        known.placements(SumOfGradients.apply(whole) * 2)
    assert known.placements(SumOfGradients.apply(local)) == "", "no DTensor was there"


def test_without_torchs_names_nothing_is_known(two_ranks, monkeypatch):  # noqa: F811
    from ttrace.adapters.torch import placement
    from ttrace.capture.private_names import PrivateName

    renamed = PrivateName("torch.distributed.tensor._api", "_ToTorchTensor.forward", "x", "renamed")
    monkeypatch.setattr(placement, "PROVENANCE", (renamed,))
    known = Provenance(topology_of(two_ranks))
    for ask in (known.placements, known.gradient_placements):
        with pytest.raises(Unplaceable, match="renamed"):
            ask(torch.ones(4, requires_grad=True) * 2)


def test_a_declared_gradient_is_a_rule_of_its_own(two_ranks):  # noqa: F811
    over, value = topology_of(two_ranks), torch.ones(4, 6)
    rule = placed("", value, 4, over, "tp:Partial(sum)")
    assert (rule.placements, rule.batch_dim, rule.grad_placements) == ("", 0, "tp:Partial(sum)")
    assert placed("", value, 4, over, "").grad_placements is None
    for_all_rows = placed("", value, 3, over, "tp:Partial(sum)")
    assert for_all_rows.grad_placements == "mb:Partial(sum) tp:Partial(sum)"
    # The cut through the batch is said by rows, of the value as of the gradient.
    rows = placed("tp:Shard(0)", value, 8, over, "tp:Shard(0)")
    assert (rows.placements, rows.grad_placements, rows.grad_unknown) == ("", None, "")
    assert "other rows" in placed("tp:Shard(0)", value, 8, over, "tp:Shard(1)").grad_unknown


def gradient_at(rule):
    moment = Moment(0, "isolated", 0, Batch(4, 4, 1, (1, 1)))
    return Place(moment, rule, "layer", "grad_output", "0", 0, "backward")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (TensorRule("", 0, grad_placements="tp:Partial(sum)"), "pending"),
        (TensorRule("", grad_placements="mb:Partial(sum) tp:Partial(sum)"), "pending"),
        (TensorRule("", 0, grad_unknown="contradictory"), "contradictory"),
    ],
)
def test_an_isolated_leg_leaves_alone_what_no_other_run_has(two_ranks, rule, words):  # noqa: F811
    kept = []
    session = SimpleNamespace(
        topology=topology_of(two_ranks),
        leg="isolated",
        checkpoints=0,
        note=lambda kind, **data: kept.append(data["reason"]),
    )
    # Asks no source for a value.
    isolation = DTensorIsolation(session, None, "real", None, lambda: False)
    gradient = torch.ones(4, 6)
    assert isolation.passed_on(gradient_at(rule), gradient) is gradient
    assert len(kept) == 1 and words in kept[0]


def test_terms_on_several_ranks_get_noise_of_their_own(two_ranks):  # noqa: F811
    names = []
    session = SimpleNamespace(
        topology=topology_of(two_ranks),
        settings=SimpleNamespace(seed=1),
        spec_at=lambda place, canonical: names.append(place.arg) or None,
    )
    noise = DTensorNoise(session, 1)
    for words in (None, "tp:Partial(sum)"):
        noise.perturbed(gradient_at(TensorRule("", 0, grad_placements=words)), torch.ones(4, 6))
    assert names == ["0", "0@tp=0"]


def test_terms_of_a_declared_sum_are_compared_as_a_sum(tmp_path):
    script = tmp_path / "by_hand.py"
    script.write_text(BY_HAND)
    one, two, wrong = (tmp_path / name for name in ("one", "two", "wrong"))
    variables = {"TTRACE_ITERATIONS": "0:1", "TTRACE_KEEP_VALUES": "1"}
    run(script, out=one, **variables)
    run(script, processes=2, out=two, TTRACE_GRAFT=one, **variables)
    place = ("cut.act", "grad_output", 0, 0, "0", "backward")
    expected, found = (Tensors(t, tmp_path / f"{t.name}.x")[place] for t in (one, two))
    assert (expected - found).norm() < 1e-5 * expected.norm()
    assert compared(tmp_path / "checked", one, two)["culprits"] == []
    run(script, "bug", processes=2, out=wrong, TTRACE_GRAFT=one, **variables)
    first = compared(tmp_path / "checked.wrong", one, wrong)["culprits"][0]
    assert (first["fqn"].split(".")[0], first["direction"]) == ("cut", "backward")
    assert "R" in [found["class"] for found in first["classes"]]
    # The model makes no DTensor of its input: copies, which the check has compared.
    alike = [e["data"] for e in index(two) if e["type"] == "note" and e["kind"] == "presumed_alike"]
    assert {"fqn": "", "role": "input", "arg": "x"} in alike
    assert Tensors(two, tmp_path / "x")["", "input", 0, 0, "x", "forward"].shape == (16, 16)
    kept = [e for e in index(two) if e["type"] == "note" and e["kind"] == "not_recorded"]
    assert not [note for note in kept if note["data"]["fqn"] == "cut.act"]
