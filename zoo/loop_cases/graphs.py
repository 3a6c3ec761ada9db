"""Graphs of different size, put together to one large graph: indices count within a rank's batch.
With --equal all graphs are rings of eight nodes, made by hand and not by a loader."""

import argparse

import torch
from ranks import data_parallel, dealt, end, part, start
from torch import nn
from torch.nn.functional import cross_entropy, relu

import ttrace


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.of_neighbours = nn.Linear(inputs, outputs)
        self.own = nn.Linear(inputs, outputs)

    def forward(self, x, edges):
        sent = self.of_neighbours(x)[edges[0]]
        return relu(
            self.own(x) + sent.new_zeros(len(x), sent.shape[1]).index_add(0, edges[1], sent)
        )


class GraphModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Convolution(5, 16), Convolution(16, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x, edges, graph, count):
        hidden = self.norm(self.second(self.first(x, edges), edges))
        return self.head(hidden.new_zeros(count, 16).index_add(0, graph, hidden))


def joined(graphs):
    sizes = torch.tensor([len(x) for x, _, _ in graphs])
    edges = [e + first for (_, e, _), first in zip(graphs, sizes.cumsum(0) - sizes, strict=True)]
    graph = torch.arange(len(graphs)).repeat_interleave(sizes)
    labels = torch.stack([y for _, _, y in graphs])
    return torch.cat([x for x, _, _ in graphs]), torch.cat(edges, 1), graph, labels


def drawn(generator):
    nodes, edges = (int(torch.randint(low, high, (), generator=generator))
                    for low, high in ((3, 8), (4, 14)))  # fmt: skip
    ring = torch.stack([torch.arange(8), torch.arange(1, 9) % 8])
    if options.equal:
        nodes, edge_list = 8, torch.cat([ring, ring.flip(0)], 1)
    else:
        edge_list = torch.randint(nodes, (2, edges), generator=generator)
    features = torch.randn(nodes, 5, generator=generator)
    return features, edge_list, torch.randint(3, (), generator=generator)


parser = argparse.ArgumentParser()
parser.add_argument("--equal", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(GraphModel())
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
ttrace.attach(model, optimizer)
generator = torch.Generator().manual_seed(2)
data = [drawn(generator) for _ in range(24)]
batches = dealt(data, 8, rank, ranks, collate_fn=joined)
if options.equal:
    mine = [part(torch.arange(first, first + 8), rank, ranks) for first in (0, 8, 16)]
    batches = [joined([data[i] for i in rows]) for rows in mine]
for x, edges, graph, labels in batches:
    cross_entropy(model(x, edges, graph, len(labels)), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
