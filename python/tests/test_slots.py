"""Slots write what the way without them does."""

import json

import pytest
import torch

from ttrace.capture.placed import Batch, Moment, TensorRule
from ttrace.capture.rewrite import Place
from ttrace.capture.session import Session
from ttrace.capture.settings import Selection, Settings

RANK = "rank-00000.r0"


class WithoutSlots(Session):
    def start(self, *arguments):
        super().start(*arguments)
        self._recorder.record_in_slot = lambda *_: False


def negated(shape):
    """Of the same values in memory, with torch's lazy bit."""
    return torch.conj(torch.randn(*shape, dtype=torch.complex64)).imag


# Rule, and tensors that come to its place one after the other.
CASES = {
    "as it is": (TensorRule(batch_dim=1), lambda: [torch.randn(4, 2, 8) for _ in range(3)]),
    "permuted": (
        TensorRule(batch_dim=1, order=(1, 0, 2)),
        lambda: [torch.randn(2, 4, 8), torch.randn(8, 4, 2).permute(2, 1, 0)],
    ),
    "one dimension": (TensorRule(order=(0,)), lambda: [torch.randn(5)]),
    "rows of positions": (
        TensorRule(batch_dim=1, rows=2),
        lambda: [torch.randn(8, 3), torch.randn(3, 8).t(), torch.randn(16, 3)[::2]],
    ),
    "rows, permuted": (
        TensorRule(batch_dim=0, rows=2, order=(1, 0, 2)),
        lambda: [torch.randn(8, 3), torch.randn(8, 3)],
    ),
    "another shape": (
        TensorRule(batch_dim=1),
        lambda: [torch.randn(*shape) for shape in ((4, 2, 8), (5, 2, 8), (4, 2, 8))],
    ),
    "another dtype": (
        TensorRule(batch_dim=1),
        lambda: [torch.randn(4, 2).to(dtype) for dtype in (torch.bfloat16, torch.float32)],
    ),
    "strides": (
        TensorRule(batch_dim=1),
        lambda: [torch.randn(8, 2, 4).permute(2, 1, 0), torch.randn(4, 1, 8).expand(4, 2, 8)],
    ),
    "lazily negated": (
        TensorRule(batch_dim=1),
        lambda: [torch.randn(4, 2), negated((4, 2)), torch.randn(4, 2)],
    ),
    "not placed": (TensorRule("tp:Shard(7)"), lambda: [torch.randn(4, 2), torch.randn(4, 2)]),
    "not strided": (TensorRule(), lambda: [torch.eye(3).to_sparse(), torch.eye(3)]),
}


def without_times(index):
    """The lines of an index but for when its records were made, and what checks all lines."""
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    kept = [line for line in lines if line.get("kind") not in ("record_times", "clock")]
    recorded = any(line["type"] == "record" for line in lines)
    assert recorded == (len(kept) < len(lines))
    for line in kept:
        del line["chain"]
    return "\n".join(map(json.dumps, kept)).encode()


def trace(folder, kind, case, select=""):
    rule, tensors = CASES[case]
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    session = kind(Settings(out=str(folder), selection=Selection.parse(select)))
    session.start(0, 2, [("tp", 2)], [0], {})
    torch.manual_seed(3)
    for step in range(3):
        for tensor in tensors():
            # Equal rules and batches made anew are no other ones; another batch is.
            batch = Batch(2 + 2 * (step // 2), 2, 1, (1, 4))
            moment = Moment(step, "real", step // 2, batch)
            for role, pass_ in (("output", "forward"), ("grad_output", "backward")):
                place = Place(moment, rule, "module", role, "0", 0, pass_)
                session.record_at(place, tensor)
                if not tensor.is_sparse and not tensor.is_neg():
                    tensor.untyped_storage().fill_(0)  # the user's, from here on
        session.seal(step, "real")
    cost, recorder = session.cost.take(), session._recorder
    counted = session.now.input_bytes, cost._leg_bytes, cost._fp32_leg_bytes
    session.finish()
    files = [without_times(folder / RANK / "index.jsonl")]
    files += [path.read_bytes() for path in sorted((folder / RANK).glob("*.safetensors"))]
    return files, counted, recorder


@pytest.mark.parametrize("case", CASES)
def test_a_slot_writes_what_the_way_without_it_does(tmp_path, case):
    slots, counted, recorder = trace(tmp_path / "slots", Session, case)
    plain, counted_plain, _ = trace(tmp_path / "plain", WithoutSlots, case)
    assert slots == plain
    assert counted == counted_plain
    assert bool(recorder._slots) is (case != "not placed")


def test_a_selection_is_followed(tmp_path):
    select = "role=grad_output"
    slots, _, recorder = trace(tmp_path / "slots", Session, "as it is", select)
    assert slots == trace(tmp_path / "plain", WithoutSlots, "as it is", select)[0]
    assert slots[0].count(b"grad_output") > 0 == slots[0].count(b'"output"')
    assert not recorder._slots
