"""Rows that a router chose: written with their router's name, read back by token."""

import json

import pytest
import torch

from index_lines import read_lines
from ttrace import _native
from ttrace.capture.placed import RoutedRows
from ttrace.capture.specs import SpecCache

SEQUENCE, BATCH, EXPERTS, HIDDEN = 4, 2, 2, 3
TOKENS = SEQUENCE * BATCH
ROUTED = RoutedRows("moe.router", "1", 1, "ep", TOKENS)
ROWS = ("real", "moe.experts.1", "input", 0, 0, "x", "forward")


def number(place):
    """Of the token at `place` of a rank's [sequence, batch] tokens."""
    return place % BATCH * SEQUENCE + place // BATCH


def append(writer, spec, tensor):
    writer.append(spec, "real", 0, 0, "forward", 0, 0, tensor.data_ptr(), tensor.stride())


@pytest.fixture
def run(tmp_path):
    """A run of one rank, its writer, and what belongs to each token of expert 1."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format":"ttrace","version":1}')
    writer = _native.Writer(str(folder), 0, 1, [("ep", 1)], [0])
    routing = torch.zeros(SEQUENCE, BATCH, EXPERTS, dtype=torch.bool)
    routing.view(-1, EXPERTS)[[1, 2, 6], 1] = True
    writer.note("expert_group", json.dumps({"name": "ep", "sources": [0]}))
    shape = [SEQUENCE, BATCH, EXPERTS]
    spec = writer.spec("moe.router", "output", "1", "bool", shape, "", 1, BATCH)
    append(writer, spec, routing)
    rows = torch.arange(3 * HIDDEN, dtype=torch.float32).view(3, HIDDEN)
    spec = writer.spec("moe.experts.1", "input", "x", "float32", [3, HIDDEN], routed=ROUTED)
    assert spec.global_shape == [TOKENS, HIDDEN]
    append(writer, spec, rows)
    writer.seal(0, "real")
    writer.close(True, "")
    scratch = _native.Writer(str(tmp_path / "scratch"), 0, 1, [("ep", 1)], [0])
    return folder, scratch, {number(p): row for p, row in zip([1, 2, 6], rows, strict=True)}


def test_the_line_names_the_router(run):
    folder, _, _ = run
    lines = read_lines(folder / "rank-00000.r0" / "index.jsonl")
    (line,) = (e for e in lines if e["type"] == "record" and "moe.experts" in e["fqn"])
    assert line["routed"] == {"by": "moe.router", "arg": "1", "expert": 1, "group": "ep"}
    assert line["shape"] == [3, HIDDEN]
    assert line["global_shape"] == [TOKENS, HIDDEN]


def test_rows_are_read_at_any_tokens(run):
    folder, scratch, expected = run
    reference = _native.Reference(str(folder))
    for wanted in (sorted(expected), sorted(expected, reverse=True), sorted(expected)[1:]):
        tokens = torch.tensor(wanted, dtype=torch.int64)
        out = torch.empty(len(wanted), HIDDEN)
        spec = scratch.spec("x", "input", "x", "float32", list(out.shape), routed=ROUTED)
        reference.read_rows(*ROWS, spec, tokens.data_ptr(), len(wanted), out.data_ptr())
        assert torch.equal(out, torch.stack([expected[token] for token in wanted]))


def test_what_was_not_sent_to_the_expert_is_not_read(run):
    folder, scratch, expected = run
    reference = _native.Reference(str(folder))
    out = torch.empty(1, HIDDEN)
    spec = scratch.spec("x", "input", "x", "float32", list(out.shape), routed=ROUTED)
    other = next(token for token in range(TOKENS) if token not in expected)
    for wanted in ([other], [TOKENS], [-1], []):
        tokens = torch.tensor(wanted, dtype=torch.int64)
        with pytest.raises(_native.Error):
            reference.read_rows(*ROWS, spec, tokens.data_ptr(), len(wanted), out.data_ptr())
    with pytest.raises(_native.Error, match="lie at their tokens"):
        reference.read(*ROWS, spec, 0, out.data_ptr())


def test_routed_rows_are_no_rows_of_the_batch(run):
    _, scratch, _ = run
    with pytest.raises(_native.Error):
        scratch.spec("x", "input", "x", "float32", [2, HIDDEN], "", 0, 8, routed=ROUTED)
    with pytest.raises(_native.Error):
        scratch.spec("x", "input", "x", "float32", [], routed=ROUTED)


def test_a_cached_spec_is_of_one_expert(run):
    _, scratch, _ = run
    refused = []
    cache = SpecCache(scratch, lambda fqn, reason: refused.append(reason))
    rows = torch.zeros(2, HIDDEN)
    first = cache.get("x", "input", "x", rows, "", routed=ROUTED)
    assert cache.get("x", "input", "x", rows, "", routed=ROUTED) is first
    other = cache.get("x", "input", "x", rows, "", routed=ROUTED._replace(expert=0))
    assert other is not first
    assert cache.get("x", "input", "x", rows, "") is not first
    assert not refused
