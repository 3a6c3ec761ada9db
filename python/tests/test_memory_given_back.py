"""Tensors whose storage has given its memory back, as flat buffers of parallel wrappers do while
nobody needs their values: to read one would end the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from test_torch_native import entries, notes
from ttrace.capture.placed import Batch, Moment, TensorRule
from ttrace.capture.rewrite import Place
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings
from ttrace.capture.tensor_bytes import has_memory


def given_back(tensor):
    """The tensor, when its storage has no memory any more."""
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.ones(3, 4), True),
        (torch.ones(3, 4).t()[1:], True),
        (torch.ones(1).expand(5, 5), True),
        (torch.ones(5)[5:], True),
        (given_back(torch.ones(3, 4)), False),
        (given_back(torch.ones(10)[:0]), True),
        (given_back(torch.ones(10)[2:]), False),
    ],
)
def test_memory_is_looked_for_up_to_the_last_element(tensor, expected):
    assert has_memory(tensor) == expected


def test_a_storage_may_end_within_a_tensor():
    whole = torch.ones(10)
    first, last = whole[:5], whole[5:]
    whole.untyped_storage().resize_(5 * whole.element_size())
    assert has_memory(first)
    assert not has_memory(last)
    assert not has_memory(whole)


LOOP = """
import sys, torch, ttrace
from torch import nn
model = nn.Linear(4, 2)
flat = torch.ones(10)
model.kept = nn.Parameter(flat[2:], requires_grad=False)
flat.untyped_storage().resize_(0)
optimizer = torch.optim.Adam(model.parameters())
ttrace.attach(model, optimizer, out=sys.argv[1])
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
"""


def test_a_parameter_without_memory_is_said_and_the_rest_is_recorded(tmp_path):
    done = subprocess.run([sys.executable, "-c", LOOP, str(tmp_path)], capture_output=True)
    assert done.returncode == 0, done.stderr
    (end,) = [e for e in entries(tmp_path) if e["type"] == "end"]
    assert end["complete"]
    said = {(e["fqn"], e["role"]): e["reason"] for e in notes(tmp_path, "not_recorded")}
    assert "given its memory back" in said["kept", "param"]
    assert ("kept", "optim_state") in said


def test_neither_is_an_activation_read_that_lost_it(tmp_path):
    """By the way that most activations take, too."""
    (tmp_path / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    session = Session(Settings(str(tmp_path)))
    session.start(0, 1, [("dp", 1)], [0], {})
    moment = Moment(0, "real", 0, Batch(2, 2, 1, (1, 1)))
    place = Place(moment, TensorRule(), "m", "output", "", 0, "forward")
    session.record_at(place, torch.ones(2, 3))
    lost = torch.ones(12)[6:].view(2, 3)
    lost.untyped_storage().resize_(0)
    session.record_at(place, lost)
    session.finish()
    assert len([e for e in entries(tmp_path) if e["type"] == "record"]) == 1
    assert [e["fqn"] for e in notes(tmp_path, "not_recorded")] == ["m"]
