"""What a forward is fed, row by row."""

from __future__ import annotations

import torch

from ttrace.adapters.torch.fed_rows import Fed, fed


def _of(values: dict[str, object], arg: str, dim: int = 0) -> Fed:
    return next(one for one in fed(values) if (one.arg, one.dim) == (arg, dim))


def _rows(one: Fed, which: int = 0) -> list[str]:
    text = one.digests[which]
    return [text[i : i + 16] for i in range(0, len(text), 16)]


def test_equal_rows_have_equal_digests_whatever_the_layout() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    whole = _rows(_of({"x": x}, "x"))
    assert len(set(whole)) == 4
    turned = x.t().contiguous().t()
    assert _rows(_of({"x": turned[[2, 0]]}, "x")) == [whole[2], whole[0]]
    assert _rows(_of({"x": x.t()}, "x", dim=1)) == whole


def test_a_padded_row_is_known_without_its_padding() -> None:
    short = _rows(_of({"x": torch.tensor([[5, 6, 7]])}, "x"))
    padded = _rows(_of({"x": torch.tensor([[5, 6, 7, 0, 0], [1, 2, 3, 4, 5]])}, "x"), which=1)
    assert padded[0] == short[0]


def test_a_row_of_tokens_is_known_without_its_last() -> None:
    short = _rows(_of({"x": torch.tensor([[5, 6]])}, "x"))
    tokens = torch.tensor([[5, 6, 7, 0, 0]])
    assert _rows(_of({"x": tokens}, "x"), which=3) == short
    # Of what is no token none is left out.
    assert not _of({"x": tokens.float()}, "x").digests[3]


def test_items_of_a_list_are_rows() -> None:
    images = [torch.rand(3, 4, 4), torch.rand(3, 5, 4)]
    targets = [{"boxes": torch.rand(2, 4)}, {"boxes": torch.rand(1, 4)}]
    one = _of({"images": images}, "images", dim=-1)
    assert one.rows == 2
    assert _rows(one)[1] == _rows(_of({"images": images[1:]}, "images", dim=-1))[0]
    assert _of({"targets": targets}, "targets", dim=-1).rows == 2


def test_what_counts_within_the_batch_is_marked() -> None:
    nodes = torch.rand(6, 5)
    edges = torch.tensor([[0, 1, 5], [1, 0, 4]])
    values = {"x": nodes, "edges": edges, "offsets": torch.tensor([0, 2, 5])}
    values["graph"] = torch.tensor([0, 0, 0, 1, 1, 1])
    values["lengths"] = torch.tensor([2, 3, 1])
    values["label"] = torch.tensor([2, 0, 1])
    marked = {one.arg for one in fed(values) if one.relative}
    assert marked == {"edges", "offsets", "graph"}


def test_nothing_is_said_of_what_cannot_be_read() -> None:
    sparse = torch.eye(3).to_sparse()
    assert fed({"s": sparse, "n": 3, "none": None, "scalar": torch.tensor(1.0)}) == []
    assert not any(_of({"x": torch.zeros(9000, 1)}, "x").digests)
