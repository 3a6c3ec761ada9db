"""Whose rows a grafted run computes with: its own, where the reference has them, or those that the
reference has in their places, and never some of both."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ttrace
from test_torch_native import Tensors, notes
from ttrace.adapters.torch.row_keeping import RowKeeping
from ttrace.capture.agreement import Agreement


def answers(monkeypatch, *has_rows):
    """Of ranks that are threads here, each asked of its first two items in turn."""
    store, ranks = dist.HashStore(), len(has_rows)
    mine = threading.local()
    monkeypatch.setattr(
        Agreement, "of_ranks", lambda _, name: Agreement(store, name, mine.rank, ranks)
    )
    found: list[tuple[bool, ...]] = [()] * ranks

    def run(rank):
        mine.rank = rank
        keeping = RowKeeping(SimpleNamespace(settings=None))
        found[rank] = tuple(keeping.asked(has) for has in has_rows[rank])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_no_rank_keeps_its_rows_where_one_has_others(monkeypatch):
    assert answers(monkeypatch, (True, True), (False, True)) == [(False, False)] * 2


def test_the_first_item_shows_how_rows_are_dealt(monkeypatch):
    found = answers(monkeypatch, (True, True), (True, False))
    assert found == [(True, True), (True, False)]
    assert answers(monkeypatch, (False, True)) == [(False, False)]


def rows(first_class, last_class):
    """Of each two, the classes are these; all rows are unlike."""
    generator = torch.Generator().manual_seed(3)
    classes = torch.tensor([first_class, last_class]).repeat(12)
    return torch.randn(24, 6, generator=generator), classes


def traced(folder, x, classes, monkeypatch=None, graft=None, size=2):
    """Three steps of eight rows each, captured."""
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    if graft is not None:
        monkeypatch.setenv("TTRACE_OUT", str(folder))
        monkeypatch.setenv("TTRACE_GRAFT", str(graft))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ttrace.attach(model, optimizer, out=str(folder))
    data = torch.utils.data.TensorDataset(x, classes)
    items = iter(torch.utils.data.DataLoader(data, batch_size=size))
    for _ in range(3):
        for _ in range(8 // size):
            mine, labels = next(items)
            loss = nn.functional.cross_entropy(model(mine), labels) * size / 8
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    tensors = Tensors(folder, folder.parent / f"{folder.name}-scratch")
    return [tensors["", "input", i, 0, "input", "forward"] for i in (0, 1)]


def test_labels_that_rise_from_zero_by_chance_are_replaced_with_their_rows(tmp_path, monkeypatch):
    x, classes = rows(3, 1)
    reference = traced(tmp_path / "reference", x, classes)
    _, own = rows(0, 5)
    grafted = traced(tmp_path / "out", x + 1, own, monkeypatch, tmp_path / "reference")
    assert all(map(torch.equal, grafted, reference))
    assert not notes(tmp_path / "out", "not_grafted")


def test_what_counts_within_the_batches_of_both_runs_is_not_replaced(tmp_path, monkeypatch):
    x, counts = rows(0, 5)
    traced(tmp_path / "reference", x, counts)
    other = x + 1
    _, own = rows(0, 4)
    grafted = traced(tmp_path / "out", other, own, monkeypatch, tmp_path / "reference")
    assert all(map(torch.equal, grafted, other.double().split(8)[:2]))
    (note,) = notes(tmp_path / "out", "not_grafted")
    assert "counts within the batch" in note["reason"]


def test_rows_of_another_iteration_are_replaced_where_batches_are_equal(tmp_path, monkeypatch):
    """As of a rank that reads on where the reference has read more in each step."""
    x, _ = rows(3, 1)
    shares = x.repeat(1, 2)[:, :8].softmax(dim=1)
    reference = traced(tmp_path / "reference", x, shares)
    swapped = [torch.cat([t[8:16], t[:8], t[16:]]) for t in (x, shares)]
    grafted = traced(tmp_path / "out", *swapped, monkeypatch, tmp_path / "reference")
    assert all(map(torch.equal, grafted, reference))
    assert {n["differs"] for n in notes(tmp_path / "out", "graft") if n["what"] == "data"} == {8}


def test_equal_labels_do_not_make_other_rows_the_reference_s(tmp_path, monkeypatch):
    x, classes = rows(3, 1)
    reference = traced(tmp_path / "reference", x, classes)
    grafted = traced(tmp_path / "out", x + 1, classes, monkeypatch, tmp_path / "reference")
    assert all(map(torch.equal, grafted, reference))


@pytest.mark.parametrize("begin", [2, 4])
def test_rows_in_another_order_stay_in_it(tmp_path, monkeypatch, begin):
    x, classes = rows(3, 1)
    traced(tmp_path / "reference", x, classes)
    turned = [torch.cat([part.roll(begin, 0) for part in t.split(8)]) for t in (x, classes)]
    grafted = traced(tmp_path / "out", *turned, monkeypatch, tmp_path / "reference")
    assert all(map(torch.equal, grafted, turned[0].double().split(8)[:2]))
