"""Graphs put together to one: edges count within a rank's own batch."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, relu


class GraphModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(5, 16), nn.Linear(16, 16)])
        self.sent = nn.ModuleList([nn.Linear(5, 16), nn.Linear(16, 16)])
        self.head = nn.Linear(16, 3)

    def forward(self, x, edges, graph, count):
        for own, sent in zip(self.own, self.sent, strict=True):
            arrived = sent(x)[edges[0]]
            x = relu(own(x) + arrived.new_zeros(len(x), 16).index_add(0, edges[1], arrived))
        return self.head(x.new_zeros(count, 16).index_add(0, graph, x))


def collate(rows):
    nodes, edges, kinds = zip(*rows, strict=True)
    sizes = torch.tensor([len(x) for x in nodes])
    starts = sizes.cumsum(dim=0) - sizes
    if run.has("lengths"):
        starts[1:] -= 1
    edges = torch.cat([e + start for e, start in zip(edges, starts, strict=True)], dim=1)
    graph = torch.arange(len(rows)).repeat_interleave(sizes)
    return torch.cat(nodes), edges, graph, torch.stack(kinds)


run = Run()
net = GraphModel()
sizes = run.lengths(3, 7).tolist()
nodes = [torch.randn(n, 5, generator=run.data) for n in sizes]
edges = [torch.randint(n, (2, 2 * n), generator=run.data) for n in sizes]
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 5e-3)
run.attach(model, optimizer)
batches = run.loader(list(zip(nodes, edges, run.integers(3), strict=True)), collate)
for step in run.steps():
    for rows in step.micro_batches(model):
        x, edge, graph, kinds = next(batches)
        logits = model(x, edge, graph, len(rows))
        step.backward(cross_entropy(logits, run.labels(kinds), reduction="sum"), len(rows))
    step.update(optimizer)
run.end()
