"""Global batches of eight and of five rows; of five one rank gets three and another two."""

import torch
from ranks import data_parallel, end, start, total
from torch import nn
from torch.nn.functional import smooth_l1_loss

import ttrace

rank, ranks = start()
model = data_parallel(nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 2)))
optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
rows = torch.utils.data.TensorDataset(
    torch.randn(13, 6, generator=random), torch.randn(13, 2, generator=random)
)
dealt = [list(batch)[rank::ranks] for batch in (range(8), range(8, 13))]
loader = torch.utils.data.DataLoader(rows, batch_sampler=dealt)
for _ in range(2):
    for x, y in loader:
        count = total(torch.tensor(float(len(x))))
        loss = smooth_l1_loss(model(x), y, reduction="sum") * ranks / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
end()
