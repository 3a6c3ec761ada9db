"""The plain torch adapter on real runs: nothing changes, and everything aligns."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import ttrace
from index_lines import read_lines
from launch_ranks import launcher
from ttrace import _native
from ttrace.adapters.torch.dtensors import Unplaceable
from ttrace.adapters.torch.placement import Provenance, batch_dim
from ttrace.adapters.torch.topology import Topology

ROOT = Path(__file__).resolve().parents[2]
DDP = ROOT / "zoo/ddp_toy.py"
TENSOR_PARALLEL = ROOT / "zoo/tensor_parallel_toy.py"

# What the toys do not do: evaluation between steps, dropout, a module that works in place, a tensor
# used three times, recomputation, clipping by a copied name, DistributedDataParallel after attach.
SCRIPT = """
import hashlib, os, sys
import torch, torch.distributed as dist
import ttrace
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.2)
        self.again = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)
    def forward(self, x, scale=1.0):
        h = self.act(self.first(x))
        h = h * scale + self.drop(h) + checkpoint(self.again, h, use_reentrant=False)
        return self.last(self.again(h)), h.mean()

torch.manual_seed(1)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ttrace.attach(net, optimizer)
if "RANK" in os.environ:
    net = nn.parallel.DistributedDataParallel(net)
data = torch.utils.data.DataLoader(torch.randn(24, 6), batch_size=4)
probe = torch.utils.data.DataLoader(torch.randn(8, 6), batch_size=4)
items = iter(data)
for step in range(3):
    for _ in range(2):
        out, extra = net(next(items), scale=0.5)
        loss = (out.square().mean() + extra) / 2
        loss.backward()
    norm = clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        check = sum(net(item)[0].sum().item() for item in probe)
    net.train()
    state = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for p in net.parameters():
        state.update(p.detach().numpy().tobytes())
    line = f"step {step} {loss.item()!r} {norm.item()!r} {check!r} {state.hexdigest()}\\n"
    os.write(1, line.encode())  # at once: ranks share the pipe
if dist.is_initialized():
    dist.destroy_process_group()
"""


def run(script, *arguments, processes=1, out=None, **variables):
    """The lines that a script prints for each step, and all that it prints."""
    command = launcher(processes if processes > 1 else 0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if out is not None:
        environment["TTRACE_OUT"] = str(out)
    environment.update({name: str(value) for name, value in variables.items()})
    for _ in range(3):
        if out is not None:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            (out / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
        done = subprocess.run(
            [*command, str(script), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        # With gloo, torch itself aborts now and then when a process ends, captured or not.
        if done.returncode == 0 or "terminate called without an active" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout
    lines = sorted(re.findall(r"^step .*$", done.stdout, re.MULTILINE))
    assert lines, done.stdout
    return lines, done.stdout


def entries(folder):
    """All index lines of all ranks."""
    found = []
    for path in sorted(Path(folder).glob("rank-*/index.jsonl")):
        found += read_lines(path)
    return found


def notes(folder, kind):
    return [e["data"] for e in entries(folder) if e["type"] == "note" and e["kind"] == kind]


def ends(folder):
    return [e for e in entries(folder) if e["type"] == "end"]


class Tensors:
    """Whole tensors of one leg of a trace, whatever mesh recorded them."""

    def __init__(self, folder, scratch, leg="real"):
        self._reference = _native.Reference(str(folder))
        self._writer = _native.Writer(str(scratch), 0, 1, [("one", 1)], [0])
        self._leg = leg
        self.shapes = {}
        for entry in entries(folder):
            if entry["type"] == "record" and entry["leg"] == leg:
                if (entry["role"], entry["pass"]) == ("optim_state", "forward"):
                    continue  # what a step starts from, recorded where it is not known already
                names = ("fqn", "role", "iteration", "call", "arg", "pass")
                place = entry["dtype"], tuple(entry["global_shape"])
                assert self.shapes.setdefault(tuple(entry[n] for n in names), place) == place

    def __getitem__(self, key):
        dtype, shape = self.shapes[key]
        value = torch.empty(shape, dtype=getattr(torch, dtype))
        spec = self._writer.spec("x", "output", "", dtype, list(shape))
        self._reference.read(self._leg, *key, spec, 0, value.data_ptr())
        return value.double()


def assert_aligned(reference, candidate, tolerance=2e-5, skip=()):
    """Every tensor of one run is one of the other's, with the same values but for round-off."""
    assert reference.shapes == candidate.shapes
    assert reference.shapes
    for key in reference.shapes:
        if key[1] in skip or "key.bias" in key[0]:
            continue  # the gradient of a key's bias is zero, but for round-off
        expected, found = reference[key], candidate[key]
        scale = expected.norm().clamp(min=1e-30)
        assert (expected - found).norm() <= tolerance * scale, key


def test_without_a_launcher_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.delenv("TTRACE_OUT", raising=False)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backward = torch.Tensor.backward
    hold = ttrace.attach(model, optimizer)
    assert not hold.captures and hold.folder is None
    hold.close()
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks
    assert torch.Tensor.backward is backward


def test_importing_does_not_import_torch():
    code = "import sys, ttrace; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_captured_run_is_the_same_run(tmp_path, processes):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    plain, _ = run(script, processes=processes)
    captured, log = run(script, processes=processes, out=tmp_path / "trace")
    assert captured == plain
    assert "ttrace:" not in log
    assert [e["complete"] for e in ends(tmp_path / "trace")] == [True] * processes
    assert not notes(tmp_path / "trace", "not_observed")
    tensors = Tensors(tmp_path / "trace", tmp_path / "scratch")
    # Evaluation and recomputation are not recorded; a module that is used twice is, twice.
    assert {call for fqn, *_, call, _, _ in tensors.shapes if fqn == "again"} == {0, 1}
    assert tensors.shapes["first", "input", 1, 0, "input", "forward"][1] == (8 * processes, 6)
    assert tensors.shapes["", "output", 0, 0, "0", "forward"][1] == (8 * processes, 3)
    assert tensors.shapes["data", "data", 0, 0, "0", "forward"][1] == (8 * processes, 6)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        pytest.param(DDP, [], id="ddp", marks=pytest.mark.matrix),
        pytest.param(TENSOR_PARALLEL, [], id="tp", marks=pytest.mark.matrix),
        pytest.param(TENSOR_PARALLEL, ["--sp"], id="tp-sp"),
    ],
)
def test_parallel_runs_align_with_one_process(tmp_path, script, arguments):
    one, two = tmp_path / "one", tmp_path / "two"
    single, _ = run(script, out=one)
    plain, _ = run(script, *arguments, processes=2)
    captured, log = run(script, *arguments, processes=2, out=tmp_path / "ungrafted")
    assert captured == plain
    assert "ttrace:" not in log
    run(script, *arguments, processes=2, out=two, TTRACE_GRAFT=one, TTRACE_KEEP_VALUES="1")
    for folder in (one, two):
        assert notes(folder, "replayer") == []  # no leg was asked for
        assert not notes(folder, "not_observed")
        assert all(end["complete"] for end in ends(folder))
    reference = Tensors(one, tmp_path / "scratch1")
    candidate = Tensors(two, tmp_path / "scratch2")
    assert_aligned(reference, candidate, skip=("data", "param_updated"))
    roles = {key[1] for key in reference.shapes}
    wanted = {"input", "output", "grad_input", "grad_output", "grad_local", "grad_reduced"}
    assert roles >= wanted | {"param", "param_updated", "loss"}
    loss = reference["loss", "loss", 0, 0, "value", "forward"].item()
    assert loss == pytest.approx(float(single[0].split()[3]), rel=1e-6)
    grafts = {note["what"] for note in notes(two, "graft")}
    if script is DDP:
        assert grafts == {"weights", "data"}
        differing = [n["differs"] for n in notes(two, "graft") if n["what"] == "data"]
        assert all(differing), "rank seeds differ, and are reported"
        norm = reference["grad_norm", "grad_norm", 0, 0, "", "optimizer"].item()
        assert norm == pytest.approx(float(single[0].split()[5]), rel=1e-6)
        total = sum(
            reference[key].square().sum()
            for key in reference.shapes
            if key[1:3] == ("grad_reduced", 0)
        )
        assert total.sqrt().item() == pytest.approx(norm, rel=1e-5), "recorded before clipping"


def diff(folder, candidate, reference=DDP):
    """The exit code and the result of comparing a DDP candidate with a loop in one process."""
    command = [sys.executable, "-m", "ttrace._cli", "diff", "-o", str(folder)]
    one, two = (shlex.join([*launcher(n), str(s)]) for n, s in ((0, reference), (2, candidate)))
    done = subprocess.run(
        [*command, "--reference", one, "--candidate", two],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    results = list(folder.rglob("result.json"))
    assert results, done.stdout
    return done.returncode, json.loads(results[0].read_text())


@pytest.mark.matrix
def test_diff_finds_nothing_in_a_clean_run(tmp_path):
    code, clean = diff(tmp_path / "clean", DDP)
    assert (code, clean["verdict"], clean["culprits"]) == (0, "within", [])
    assert clean["coverage"]["reference_only"] == clean["coverage"]["candidate_only"] == 0


def test_diff_finds_the_bug_in_a_broken_run(tmp_path):
    broken = tmp_path / "broken.py"
    text = DDP.read_text()
    assert "last = micro == accumulate - 1" in text
    # Every backward runs under no_sync: gradients are never averaged.
    broken.write_text(text.replace("last = micro == accumulate - 1", "last = False"))
    code, result = diff(tmp_path / "broken", broken)
    assert (code, result["verdict"]) == (1, "diverged")
    first = result["culprits"][0]
    place = {name: first[name] for name in ("fqn", "role", "direction", "stage", "iteration")}
    assert place == {
        "fqn": "head.bias",
        "role": "grad_reduced",
        "direction": "backward",
        "stage": "communication",
        "iteration": 0,
    }
    assert "P" in [found["class"] for found in first["classes"]]


@pytest.mark.matrix
def test_noise_is_of_the_size_of_round_off_and_repeats(tmp_path):
    real, first, again, other, cut = (tmp_path / n for n in ("r", "a", "b", "c", "tp"))
    run(DDP, out=real)
    for folder, leg in ((first, "noise.1"), (again, "noise.1"), (other, "noise.2")):
        run(DDP, out=folder, TTRACE_LEG=leg, TTRACE_GRAFT=real)
    expected = Tensors(real, tmp_path / "s0")
    one = Tensors(first, tmp_path / "s1", "noise.1")
    same = Tensors(again, tmp_path / "s2", "noise.1")
    two = Tensors(other, tmp_path / "s3", "noise.2")
    moved = 0
    for key in expected.shapes:
        assert torch.equal(one[key], same[key]), key
        if key[1] in ("output", "grad_output", "grad_local"):
            error = (one[key] - expected[key]).norm() / expected[key].norm()
            assert error < 1e-5, key
            moved += not torch.equal(one[key], two[key]) and error > 0
    assert moved > 100
    _, log = run(TENSOR_PARALLEL, "--sp", processes=2, out=cut, TTRACE_LEG="noise.1")
    assert "ttrace:" not in log
    noisy = Tensors(cut, tmp_path / "s4", "noise.1")
    assert ("layers.0.ffn.down", "output", 0, 0, "0", "forward") in noisy.shapes


def test_an_fp32_leg_of_an_fp32_run_is_skipped_with_a_reason(tmp_path):
    plain, _ = run(DDP)
    lines, _ = run(DDP, out=tmp_path / "t", TTRACE_LEG="fp32")
    assert lines == plain
    skipped = notes(tmp_path / "t", "leg_skipped")
    assert {(n["leg"], n["iteration"]) for n in skipped} == {("fp32", 0), ("fp32", 1)}
    assert {n["reason"] for n in skipped} == {"the run is fp32 already"}
    assert not [e for e in entries(tmp_path / "t") if e["type"] == "record"]


def test_a_failing_capture_leaves_the_run_alone(tmp_path):
    plain, _ = run(DDP)
    # No manifest, no folder, and a file where the folder should be.
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    lines, log = run(DDP, TTRACE_OUT=blocked)
    assert lines == plain
    assert "ttrace: rank 0: capture stopped" in log
    assert log.count("ttrace:") == 1


def test_a_folder_in_the_call_needs_no_launcher(tmp_path):
    script = tmp_path / "script.py"
    call = f"ttrace.attach(net, optimizer, out={str(tmp_path / 'out')!r})"
    script.write_text(SCRIPT.replace("ttrace.attach(net, optimizer)", call))
    plain_lines, log = run(script)
    assert "ttrace:" not in log
    assert Tensors(tmp_path / "out", tmp_path / "scratch").shapes
    again, log = run(script)
    assert again == plain_lines
    assert "has a trace already" in log


def test_batch_dimension():
    size = torch.Size
    assert batch_dim(size([4, 7]), 4) == 0
    assert batch_dim(size([4, 4]), 4) == 0
    assert batch_dim(size([7, 4, 3]), 4) == 1
    assert batch_dim(size([7, 3]), 4) == -1
    assert batch_dim(size([]), 4) == -1
    with pytest.raises(Unplaceable):
        batch_dim(size([7, 4, 4]), 4)


@pytest.fixture
def two_ranks():
    """Rank 0 of a tensor-parallel pair, in one process: its collectives do nothing."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def topology_of(mesh):
    """Of a model with a parameter on it."""
    from torch.distributed.tensor import DTensor, Replicate

    model = nn.Module()
    weight = DTensor.from_local(torch.zeros(2), mesh, [Replicate()] * mesh.ndim, run_check=False)
    model.weight = nn.Parameter(weight)
    return Topology.of(model, [])


def test_placements_are_derived_or_refused(two_ranks):
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    def handed_on(placement):
        local = torch.ones(4, 6, requires_grad=True)
        return DTensor.from_local(local, two_ranks, [placement]).to_local()

    topology = topology_of(two_ranks)
    given = torch.ones(4)
    lies = {}
    known = Provenance(topology, [given], lies)
    assert (known.placements(given), lies) == ("?0", {"?0": None}), "nothing has said it yet"
    assert known.declared(given, two_ranks, [Replicate()]) == ""
    assert lies == {"?0": ""}
    shard, same, whole = handed_on(Shard(1)), handed_on(Shard(1)), handed_on(Replicate())
    assert known.placements(given) == known.placements(given[1:]) == ""
    # A part of the batch, as in sequence parallel: no copy of anything.
    part, lies = torch.ones(2, 6), {}
    known = Provenance(topology, [part], lies)
    assert known.declared(part, two_ranks, [Shard(0)]) == "tp:Shard(0)"
    assert (known.placements(part), lies) == ("tp:Shard(0)", {"?0": "tp:Shard(0)"})
    assert known.placements(shard) == "tp:Shard(1)"
    assert known.placements(nn.functional.gelu(shard) + same) == "tp:Shard(1)"
    assert known.placements(whole.transpose(0, 1).softmax(-1)) == ""
    weight = torch.ones(6, requires_grad=True)
    assert known.placements(shard * weight) == "tp:Shard(1)"
    for lost in (
        shard.transpose(0, 1),
        shard.reshape(2, 12),
        shard @ torch.ones(6, 6),
        shard + handed_on(Shard(0)),
        shard + torch.ones(2, 4, 6),
        handed_on(Partial()) * 2,
        torch.ones(4, 6),
    ):
        with pytest.raises(Unplaceable):
            known.placements(lost)


def test_terms_of_a_pending_sum_have_no_norm():
    from types import SimpleNamespace

    from ttrace.capture.course import Course
    from ttrace.capture.parameter_store import Piece

    places = {"term": "tp:Partial(sum)", "part": "tp:Shard(0)", "plain": ""}
    pieces = [Piece(fqn, torch.ones(4), place) for fqn, place in places.items()]
    recorded, noted = [], []
    session = SimpleNamespace(
        leg="real", recording=True, iteration=0, note=lambda kind, **data: noted.append(data)
    )
    course = SimpleNamespace(
        _store=SimpleNamespace(reduced_gradients=lambda: pieces),
        _session=session,
        _gradient=lambda role, piece: recorded.append(piece.fqn),
    )
    Course.record_reduced(course)
    assert recorded == list(places)
    assert [data["norms"] for data in noted] == [{"part": 2.0, "plain": 2.0}]


def checksums(folder, leg):
    """Of every record of rank 0, by what it is."""
    return {
        (e["fqn"], e["role"], e["arg"], e["call"], e["pass"], e["micro_batch"]): e["xxh3"]
        for e in read_lines(folder / "rank-00000.r0" / "index.jsonl")
        if e["type"] == "record" and e["leg"] == leg
    }


@pytest.mark.parametrize(
    ("script", "grafted"), [(DDP, False), (TENSOR_PARALLEL, False), (DDP, True)]
)
def test_isolated_from_its_own_values_a_loop_repeats_itself(tmp_path, script, grafted):
    """As `record` launches legs of a loop one by one, they take weights and data from its trace."""
    trace, leg = tmp_path / "trace", tmp_path / "trace" / "legs" / "isolated"
    run(script, "--steps", "1", out=trace, TTRACE_ITERATIONS="0:1")
    leg.parent.mkdir()
    run(script, "--steps", "1", out=leg, TTRACE_ITERATIONS="0:1", TTRACE_LEG="isolated")
    alone = checksums(leg, "isolated")
    assert {place[1] for place in alone} >= {"input", "output", "grad_output", "grad_input"}
    assert alone == checksums(trace, "real")
    noise = tmp_path / "trace" / "legs" / "isolated.noise.1"
    own = {"TTRACE_GRAFT": trace, "TTRACE_GRAFT_WHAT": "weights,data"} if grafted else {}
    leg = {"TTRACE_ITERATIONS": "0:1", "TTRACE_LEG": "isolated.noise.1", **own}
    run(script, "--steps", "1", out=noise, **leg)
    noisy = checksums(noise, "isolated.noise.1")
    assert noisy.keys() == alone.keys()
    # Gradients of inputs move by the noise of what is put in place alone.
    moved = {place[1] for place in alone if noisy[place] != alone[place]}
    assert moved >= {"input", "output", "grad_output", "grad_input"}
