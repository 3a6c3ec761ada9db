"""The model is given a list of rows of all lengths, longest first, and calls its cell on ever fewer
of them; another rank has other rows and so another number of calls."""

import torch
from ranks import data_parallel, end, start
from torch import nn
from torch.nn.functional import mse_loss

import ttrace


class Shrinking(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(5, 8), nn.Linear(8, 1)

    def forward(self, rows):
        hidden, done = torch.zeros(len(rows), 8), []
        for place in range(len(rows[0])):
            going = [row[place] for row in rows if len(row) > place]
            done.append(hidden[len(going) :])
            hidden = self.cell(torch.stack(going), hidden[: len(going)])
        return self.head(torch.cat([hidden, *reversed(done)])).squeeze(1)


rank, ranks = start()
model = data_parallel(Shrinking())
optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
lengths = torch.randint(2, 8, (24,), generator=random).tolist()
rows = [torch.randn(length, 5, generator=random) for length in lengths]
wanted = torch.randn(24, generator=random)
for begin in range(0, 24, 8):
    own = list(range(begin + rank, begin + 8, ranks))
    own.sort(key=lambda row: len(rows[row]), reverse=True)
    mse_loss(model([rows[row] for row in own]), wanted[own]).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
