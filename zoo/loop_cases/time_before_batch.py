"""Translation with torch's own transformer in its own layout, (time, batch, channels), padded to a
batch's longest sentence; the head shares its weight with the embedding."""

import torch
from ranks import data_parallel, end, start, total
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import ttrace

VOCABULARY, WIDTH = 40, 16


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.places = nn.Parameter(torch.randn(32, 1, WIDTH) * 0.02)
        self.transformer = nn.Transformer(WIDTH, 2, 1, 1, 32, dropout=0.0)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.words.weight

    def forward(self, source, target):
        vectors = [4 * self.words(x) + self.places[: len(x)] for x in (source, target)]
        later = torch.ones(len(target), len(target), dtype=torch.bool).triu(1)
        source_pad, target_pad = (source == 0).T, (target == 0).T
        return self.head(
            self.transformer(
                *vectors,
                tgt_mask=later,
                src_key_padding_mask=source_pad,
                tgt_key_padding_mask=target_pad,
                memory_key_padding_mask=source_pad,
            )
        )


rank, ranks = start()
model = data_parallel(Translator())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(3)
lengths = torch.randint(4, 10, (24, 2), generator=random).tolist()
data = [[torch.randint(1, VOCABULARY, (n,), generator=random) for n in pair] for pair in lengths]
mine = [[*range(b + rank * 8 // ranks, b + (rank + 1) * 8 // ranks)] for b in (0, 8, 16)]
loader = torch.utils.data.DataLoader(
    data,
    batch_sampler=mine,
    collate_fn=lambda rows: [pad_sequence(side) for side in zip(*rows, strict=True)],
)
for source, target in loader:
    labels = target[1:]
    count = total((labels != 0).sum())
    logits = model(source, target[:-1])
    loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, reduction="sum")
    (loss * ranks / count).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
