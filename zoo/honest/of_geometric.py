"""Graphs, layers and batches of torch-geometric."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINConv, global_add_pool


class GraphModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(5, 16)
        self.second = GINConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)))
        self.head = nn.Linear(16, 3)

    def forward(self, batch):
        hidden = self.first(batch.x, batch.edge_index).relu()
        hidden = self.second(hidden, batch.edge_index)
        return self.head(global_add_pool(hidden, batch.batch, batch.num_graphs))


run = Run()
net = GraphModel()
kinds = run.integers(3)
graphs = [
    Data(
        x=torch.randn(n, 5, generator=run.data),
        edge_index=torch.randint(n, (2, 2 * n), generator=run.data),
        y=kinds[row : row + 1],
    )
    for row, n in enumerate(run.lengths(3, 7).tolist())
]
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 5e-3)
run.attach(model, optimizer)
batches = run.loader(graphs, Batch.from_data_list)
for step in run.steps():
    for rows in step.micro_batches(model):
        batch = next(batches)
        loss = cross_entropy(model(batch), run.labels(batch.y), reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
