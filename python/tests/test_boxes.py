"""What the native module says of boxes and of other grids of the ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ttrace import _native
from ttrace.capture.specs import SpecCache

WHOLE = torch.arange(48, dtype=torch.float32).reshape(6, 8)
MESH = [("dp", 2), ("tp", 2)]


def test_a_range_is_boxes_with_the_offset_of_each() -> None:
    boxes = _native.boxes_of_range([3, 4], 2, 9)
    assert boxes == [
        (2, [(0, 1, 3), (2, 2, 4)]),
        (4, [(1, 1, 3), (0, 4, 4)]),
        (8, [(2, 1, 3), (0, 1, 4)]),
    ]
    assert _native.boxes_of_range([], 0, 1) == [(0, [])]
    assert _native.boxes_of_range([3, 4], 5, 5) == []
    with pytest.raises(_native.Error):
        _native.boxes_of_range([3, 4], 5, 13)


def append(writer: Any, spec: Any, tensor: torch.Tensor) -> None:
    writer.append(spec, "real", 0, 0, "optimizer", -1, 0, tensor.data_ptr(), tensor.stride())


def write_optimizer(folder: Path, cuts: list[int]) -> None:
    """A parameter cut along dimension 1 by tp, its halves of 24 elements by flat ranges over dp."""
    for rank in range(4):
        dp, tp = rank // 2, rank % 2
        writer = _native.Writer(str(folder), rank, 4, MESH, [dp, tp])
        half = WHOLE[:, 4 * tp : 4 * tp + 4].contiguous()
        flat = half.reshape(-1)
        specs = SpecCache(writer, lambda fqn, reason: pytest.fail(f"{fqn}: {reason}"))
        for offset, box in _native.boxes_of_range(list(half.shape), cuts[dp], cuts[dp + 1]):
            shape = [size for _, size, _ in box]
            piece = flat[offset : offset + shape[0] * shape[1]].reshape(shape)
            spec = specs.get(
                "weight",
                "optim_state",
                "exp_avg",
                piece,
                "dp:RaggedShard tp:Shard(1)",
                box=tuple(box),
            )
            assert spec.global_shape == [6, 8]
            append(writer, spec, piece)
        writer.close(True, "")


def test_boxes_are_read_back_at_any_place(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format":"ttrace","version":1}')
    write_optimizer(tmp_path, [0, 10, 24])
    reference = _native.Reference(str(tmp_path))
    writer = _native.Writer(str(tmp_path / "other"), 0, 2, [("dp", 2)], [0])
    box = [(1, 3, 6), (2, 5, 8)]
    spec = writer.spec(
        "weight", "optim_state", "exp_avg", "float32", [3, 5], "dp:RaggedShard", box=box
    )
    out = torch.empty(3, 5)
    reference.read(
        "real", "weight", "optim_state", 0, 0, "exp_avg", "optimizer", spec, 0, out.data_ptr()
    )
    assert torch.equal(out, WHOLE[1:4, 2:7])


def test_a_box_has_to_fit(tmp_path: Path) -> None:
    writer = _native.Writer(str(tmp_path), 0, 2, [("dp", 2)], [0])

    def spec(shape: list[int], placements: str, box: Any) -> Any:
        return writer.spec("w", "param", "", "float32", shape, placements, box=box)

    assert spec([2], "dp:RaggedShard", [(1, 2, 4)]).global_shape == [4]
    for shape, placements, box in [
        ([2], "dp:RaggedShard", None),
        ([2], "", [(0, 2, 4)]),
        ([3], "dp:RaggedShard", [(1, 2, 4)]),
        ([2], "dp:RaggedShard", [(3, 2, 4)]),
        ([2, 1], "dp:RaggedShard", [(1, 2, 4)]),
    ]:
        with pytest.raises(_native.Error):
            spec(shape, placements, box)


def test_a_box_is_part_of_the_key_of_a_spec(tmp_path: Path) -> None:
    writer = _native.Writer(str(tmp_path), 0, 2, [("dp", 2)], [0])
    specs = SpecCache(writer, lambda fqn, reason: pytest.fail(f"{fqn}: {reason}"))
    piece = torch.zeros(2)
    first, second, again = (
        specs.get("w", "param", "", piece, "dp:RaggedShard", box=((begin, 2, 4),))
        for begin in (0, 2, 0)
    )
    assert first is again
    assert first is not second


def test_placements_may_name_another_grid(tmp_path: Path) -> None:
    views = [([("edp", 1), ("ep", 2)], [0, 1])]
    writer = _native.Writer(str(tmp_path), 1, 2, [("tp", 2)], [1], views=views)
    spec = writer.spec("w", "param", "", "float32", [3], "ep:Shard(0)", reduced_over=["edp"])
    assert spec.global_shape == [6]
    with pytest.raises(_native.Error):
        writer.spec("w", "param", "", "float32", [3], "ep:Shard(0) tp:Replicate")
    bad = [([("edp", 1), ("ep", 4)], [0, 1])]
    with pytest.raises(_native.Error):
        _native.Writer(str(tmp_path), 1, 2, [("tp", 2)], [1], views=bad)
