"""Tensors inside the values that modules take and return."""

from collections import OrderedDict, UserDict, defaultdict

import pytest
import torch

from ttrace.capture.nested import named_tensors, with_replaced
from ttrace.capture.replay_data import clone


class Encoded(UserDict):
    """As tokenizers return: no dict, with attributes of its own."""

    def __init__(self, data):
        super().__init__(data)
        self.made_by = "tokenizer"


def a_default():
    return defaultdict(list, {"x": torch.zeros(2)})


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"x": torch.zeros(2)},
        lambda: OrderedDict(x=torch.zeros(2)),
        a_default,
        lambda: Encoded({"x": torch.zeros(2)}),
    ],
    ids=["dict", "ordered", "default", "encoded"],
)
def test_what_holds_items_by_key(make):
    value = make()
    value["note"] = "text"
    assert [name for name, _ in named_tensors(value, "batch")] == ["batch.x"]
    other = with_replaced(value, "batch", {"batch.x": torch.ones(2)})
    assert type(other) is type(value) and other["note"] == "text"
    assert torch.equal(other["x"], torch.ones(2)) and torch.equal(value["x"], torch.zeros(2))
    assert getattr(other, "made_by", "tokenizer") == "tokenizer"
    copied = clone(value)
    assert type(copied) is type(value) and copied["x"] is not value["x"]


def test_graphs_of_torch_geometric():
    data = pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0, 1], [1, 0]])
    graphs = [data.Data(x=torch.full((2, 3), float(i)), edge_index=edges) for i in range(2)]
    batch = data.Batch.from_data_list(graphs)
    names = [name for name, _ in named_tensors(batch, "graph")]
    assert set(names) == {"graph.x", "graph.edge_index", "graph.batch", "graph.ptr"}
    other = with_replaced(batch, "graph", {"graph.x": torch.ones(4, 3)})
    assert torch.equal(other.x, torch.ones(4, 3)) and not torch.equal(batch.x, other.x)
    assert other.num_graphs == 2
    assert torch.equal(clone(batch).x, batch.x)
