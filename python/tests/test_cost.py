"""What reruns will take, as a rank says it before the first."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ttrace.capture.cost import Cost
from ttrace.capture.slots import sizes


def test_counts_what_reruns_have_again_apart_from_states(tmp_path: Path) -> None:
    cost = Cost()
    cost.add("param", *sizes(torch.zeros(10, dtype=torch.bfloat16)))
    cost.add("optim_state", *sizes(torch.zeros(10)))
    cost.add("output", *sizes(torch.zeros(3, 4, dtype=torch.bfloat16)))
    cost.add("output", *sizes(torch.zeros(5, dtype=torch.int64)))  # as wide in an fp32 leg
    cost.say(str(tmp_path), {"replay": 7, "fp32.noise.1": 9}, free_memory=11)

    (line,) = (tmp_path / "messages.jsonl").read_text().splitlines()
    message = json.loads(line)
    assert message["kind"] == "cost"
    assert message["state_bytes"] == 20 + 40
    assert message["leg_bytes"] == 24 + 40
    assert message["fp32_leg_bytes"] == 48 + 40
    assert (message["legs"], message["fp32_legs"]) == (2, 1)
    assert (message["stored_legs"], message["stored_fp32_legs"]) == (2, 1)
    assert (message["memory"], message["free_memory"]) == (9, 11)


def test_legs_that_are_measured_are_not_stored(tmp_path: Path) -> None:
    memory = {"replay": 7, "noise.1": 8, "fp32": 9, "fp32.noise.1": 9}
    Cost().say(str(tmp_path), memory, free_memory=11, measured=True)
    message = json.loads((tmp_path / "messages.jsonl").read_text())
    assert (message["legs"], message["fp32_legs"]) == (4, 2)
    assert (message["stored_legs"], message["stored_fp32_legs"]) == (2, 1)


def test_of_measured_legs_some_values_are_stored(tmp_path: Path) -> None:
    cost = Cost()
    cost.add("output", 64, 192)
    cost.add("grad_local", 32, 32, needs_values=True)
    cost.add("grad_local", 32, 32, needs_values=True)
    cost.add("param", 100, 100)
    memory = dict.fromkeys(("replay", "noise.1", "noise.2", "fp32", "fp32.noise.1"), 0)
    cost.say(str(tmp_path), memory, free_memory=11, measured=True)
    message = json.loads((tmp_path / "messages.jsonl").read_text())
    assert (message["stored_legs"], message["stored_fp32_legs"]) == (1 + 2 * 0.5 + 1.25, 1.25)


def test_without_a_leg_nothing_is_taken(tmp_path: Path) -> None:
    Cost().say(str(tmp_path), {}, free_memory=1)
    message = json.loads((tmp_path / "messages.jsonl").read_text())
    assert (message["legs"], message["memory"], message["leg_bytes"]) == (0, 0, 0)
