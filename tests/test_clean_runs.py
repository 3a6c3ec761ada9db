"""Which clean runs are drawn, what is left out of them, and what is said of their number."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from runs import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from clean_table.bound import upper_bound
from clean_table.fits import fits, known_bug
from clean_table.outcome import kind, outcome
from clean_table.plan import models
from clean_table.table import write_table
from clean_table.topology import Topology, expert_groups, groups

OPTIONS = {
    "layers": 4,
    "heads": 4,
    "kv-groups": 2,
    "ffn": 128,
    "seq": 32,
    "vocab": 64,
    "micro-batch": 2,
    "global-batch": 8,
}
TWO = Topology(dp=2, micro_batch=2)
CP2 = Topology(cp=2, micro_batch=2)
TP2 = Topology(tp=2, sp=True, micro_batch=2)


@pytest.mark.parametrize(
    ("seen", "tries", "bound"),
    [(0, 300, 0.009936), (1, 300, 0.015715), (2, 10, 0.506901), (10, 10, 1.0)],
)
def test_upper_bound_is_clopper_and_pearsons(seen: int, tries: int, bound: float) -> None:
    assert upper_bound(seen, tries) == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize(
    "topology",
    [
        Topology(tp=4, micro_batch=2),  # two key-value groups
        Topology(pp=3, micro_batch=2),
        Topology(dp=8, micro_batch=2),
        Topology(pp=2, vpp=4, micro_batch=2),
        Topology(ep=2, dp=2, micro_batch=2),  # no experts
        Topology(pp=2, vpp=2, dp=2, micro_batch=4),  # one call, of which two stages need two
    ],
)
def test_what_does_not_divide_does_not_fit(topology: Topology) -> None:
    assert fits(OPTIONS, TWO) and fits(OPTIONS, TP2)
    assert not fits(OPTIONS, topology)


@pytest.mark.parametrize(
    ("more", "topology"),
    [
        ({"seq": 30}, Topology(cp=4, micro_batch=2)),
        ({"seq": 31}, TP2),
        ({"vocab": 63}, TP2),
        ({"ffn": 63}, TP2),
        ({"experts": 4, "shared-expert-ffn": 33}, Topology(2, ep=2, etp=1, sp=True, micro_batch=2)),
        ({"dropout": 0.1}, Topology(cp=2, micro_batch=2)),
        ({"softmax": "off-by-one"}, Topology(cp=2, micro_batch=2)),
        ({"optimizer": "sgd"}, Topology(dp=2, distributed_optimizer=True, micro_batch=2)),
        ({"mtp": 1}, Topology(pp=2, micro_batch=2)),
        ({"experts": 4}, Topology(tp=2, ep=2, etp=1, micro_batch=2)),  # without sp
        ({"experts": 4}, Topology(dp=2, ep=4, micro_batch=2)),
        ({"experts": 4, "aux-loss": "aux_loss"}, Topology(dp=2, micro_batch=1)),
        ({"experts": 4, "aux-loss": "global_aux_loss"}, TWO),
        ({"experts": 4, "capacity-factor": 1.0}, Topology(cp=2, micro_batch=2)),
        ({"experts": 4, "capacity-factor": 1.0}, Topology(dp=2, micro_batch=1)),
    ],
)
def test_what_is_refused_or_another_function_does_not_fit(
    more: dict[str, Any], topology: Topology
) -> None:
    assert not fits(OPTIONS | more, topology)


@pytest.mark.parametrize(
    ("more", "topology", "bug"),
    [
        ({"experts": 4}, Topology(tp=2, sp=True, etp=1), "ETP 1"),
        ({"experts": 4, "z-loss": 0.1, "per-token-loss": True}, TP2, "per token"),
        ({"experts": 4, "aux-loss": "seq_aux_loss", "per-token-loss": True}, CP2, "per token"),
        ({"label-smoothing": 0.1}, TP2, "smoothing"),
        ({"softmax": "learnable"}, TP2, "sinks"),
    ],
)
def test_known_bugs_of_the_library_are_left_out(
    more: dict[str, Any], topology: Topology, bug: str
) -> None:
    options = OPTIONS | more
    assert bug in (known_bug(options, topology) or "")
    assert not fits(options, topology)
    assert known_bug(options, TWO) is None
    assert known_bug(OPTIONS, topology) is None


def test_groups_use_all_ranks() -> None:
    found = list(groups(8))
    assert len(found) == len(set(found)) == 20
    assert {topology.processes for topology in found} == {8}
    assert (2, 2) in expert_groups(Topology(tp=2, dp=2), 4)
    assert (4, 2) not in expert_groups(Topology(tp=2, dp=2), 4)
    assert (4, 1) not in expert_groups(Topology(tp=2, dp=2), 6)


def test_flags_leave_the_rest_of_the_processes_to_data_parallelism() -> None:
    topology = Topology(tp=2, pp=2, dp=2, ep=2, etp=1, sp=True, micro_batch=1)
    assert topology.processes == 8
    assert topology.shape == "TP2 SP PP2 DP2 EP2 ETP1"
    text = " ".join(topology.flags)
    assert text == "--tp 2 --pp 2 --ep 2 --etp 1 --sp --micro-batch 1"


def test_the_plan_follows_from_its_number_and_the_halves_share_nothing() -> None:
    first = list(itertools.islice(models("A"), 12))
    assert first == list(itertools.islice(models("A"), 12))
    held_out = list(itertools.islice(models("B"), 12))
    assert not {m.reference for m in first} & {m.reference for m in held_out}
    assert all(3 <= model.wanted <= 6 for model in first)
    scripts = {model.reference.script for model in itertools.islice(models("B"), 40)}
    assert len(scripts) > 2


@pytest.mark.parametrize(
    ("fqn", "name"),
    [
        ("decoder.layers.3.mlp.linear_fc1.weight", "linear_fc1.weight"),
        ("decoder.layers.3.mlp", "mlp"),
        ("decoder.layers.3", "layers"),
        ("decoder.layers.1.mlp.experts.local_experts.2.linear_fc1", "experts.linear_fc1"),
        (
            "decoder.layers.1.mlp.shared_experts.linear_fc2.weight",
            "shared_experts.linear_fc2.weight",
        ),
        ("", "model"),
    ],
)
def test_a_kind_is_a_name_without_its_place(fqn: str, name: str) -> None:
    assert kind(fqn) == name


def test_headrooms_count_where_a_test_may_flag(tmp_path: Path) -> None:
    contradicted = tensor("decoder.layers.5.mlp", leg("isolated", 9.0), replaced=True)
    contradicted["isolated"]["verdict"] = "not_checkable"  # the run itself is within
    result = {
        "verdict": "within",
        "exit_code": 0,
        "reason": "all within",
        "culprits": [],
        "notes": [],
        "tests": 5,
        "not_checkable": 0,
        "coverage": {"compared": 4},
        "tensors": [
            tensor("decoder.layers.0.mlp", leg("real", 0.4), leg("isolated", 0.9)),
            tensor("decoder.layers.1.mlp", leg("real", 0.6), leg("isolated", 0.3), replaced=True),
            tensor("decoder.layers.2.mlp", leg("real", 5.0), explained=True),
            tensor("decoder.layers.3.mlp", leg("real", 7.0, checkable=False)),
            tensor("decoder.layers.4.mlp", leg("real", 8.0), headroom=0.2),  # turned choices
            tensor("decoder.layers.3.mlp", leg("real", 0.97, statistic="step"), role="optim_state"),
            contradicted,
        ],
    }
    line = outcome(result)
    found = {key: role["headroom"] for key, role in line["roles"].items()}
    assert found == {
        "mlp|output||end to end": 0.6,
        "mlp|output||isolated": 0.3,
        "mlp|optim_state|exp_avg|exact": 0.97,
    }
    assert line["largest"]["tensor"] == "decoder.layers.1.mlp"

    run = {"half": "A", "model": 3, "shape": "TP2", "reference": "python zoo/train_gpt.py"}
    run |= {"candidate": "torchrun --nproc-per-node 2 zoo/train_gpt.py --bf16 --tp 2"} | line
    alarm = run | {"verdict": "diverged", "reason": "first at mlp", "shape": "CP2"}
    refused = run | {"verdict": "refused"}
    lines = [json.loads(json.dumps(x)) for x in (run, alarm, refused)]
    write_table(tmp_path / "table.md", lines, [alarm, refused])
    text = (tmp_path / "table.md").read_text()
    assert "| A | 1 | 2 | 1 | 1 | 0 | 10 | 0.9747 |" in text
    assert "A3, CP2: diverged: first at mlp" in text
    assert "1 runs of configurations that are no longer drawn, of which 1" in text
    assert "1 launches that the trainer refuses" in text
    assert "| `--bf16` | 2 | 1 | 1 | 0 | 0.60 |" in text
    assert "| mlp | output | 0.60 | 0.30 |  |" in text
    assert "| mlp | optim_state exp_avg |  |  | 0.97 |" in text


def leg(name: str, headroom: float, statistic: str = "norm", checkable: bool = True) -> dict:
    test = {"statistic": statistic, "headroom": headroom}
    return {"leg": name, "checkable": checkable, "tests": [test]}


def tensor(
    fqn: str,
    *legs: dict,
    role: str = "output",
    replaced: bool = False,
    explained: bool = False,
    headroom: float = 0.9,
) -> dict:
    return {
        "fqn": fqn,
        "headroom": headroom,
        "role": role,
        "arg": "exp_avg" if role == "optim_state" else "0",
        "explained": explained,
        "isolated": {"replaced": replaced, "verdict": "within"},
        "legs": list(legs),
    }
