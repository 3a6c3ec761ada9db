"""A data set of token sequences that a tiny GPT can learn something from, and its sampler.

Sample i is a function of (seed, i): an affine walk through the vocabulary, the next token being
a * token + c, in which one token of ten is replaced by noise. Every rank can therefore make any
sample, and the global batch does not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

_NOISE = 0.1


class SyntheticTokens(torch.utils.data.Dataset):
    """Samples with the keys that Megatron-LM's GPT data set has.

    With `uneven_mask` up to 60 % of the positions of a sample, a prompt as it were, do not count
    in the loss. How many depends on the sample's index only. These positions can be marked as
    padding (True) and be hidden from others, by a mask of attention [1, length, length] (True:
    hidden).
    """

    def __init__(
        self,
        vocab: int,
        length: int,
        seed: int,
        uneven_mask: bool = False,
        *,
        with_padding_mask: bool = False,
        with_attention_mask: bool = False,
    ) -> None:
        self.vocab, self.length, self.seed, self.uneven_mask = vocab, length, seed, uneven_mask
        self.with_padding_mask, self.with_attention_mask = with_padding_mask, with_attention_mask

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        noise = torch.randint(self.vocab, (self.length + 1,), generator=generator)
        noisy = torch.rand(self.length + 1, generator=generator) < _NOISE
        walk = [int(noise[0])]
        for _ in range(self.length):
            walk.append((5 * walk[-1] + 3) % self.vocab)
        tokens = torch.where(noisy, noise, torch.tensor(walk))

        loss_mask = torch.ones(self.length)
        if self.uneven_mask:
            loss_mask[: self.length * (index * 37 % 61) // 100] = 0.0
        sample = {
            "tokens": tokens[:-1],
            "labels": tokens[1:],
            "loss_mask": loss_mask,
            "position_ids": torch.arange(self.length),
        }
        left_out = loss_mask == 0
        if self.with_padding_mask:
            sample["padding_mask"] = left_out
        if self.with_attention_mask:
            later = torch.ones(self.length, self.length, dtype=torch.bool).triu(1)
            # A position sees itself, so that no row of scores is empty.
            others = ~torch.eye(self.length, dtype=torch.bool)
            sample["attention_mask"] = (later | (left_out[None, :] & others))[None]
        return sample


class PretrainingSampler:
    """Megatron-LM's rule: the samples of one call, of all data-parallel ranks, are consecutive.

    Rank d of `size` takes samples [(k * size + d) * micro_batch, ... + micro_batch) in call k,
    counted over the whole run. Endless.
    """

    def __init__(self, micro_batch: int, rank: int, size: int) -> None:
        self.micro_batch, self.rank, self.size = micro_batch, rank, size

    def __iter__(self) -> Iterator[list[int]]:
        call = 0
        while True:
            start = (call * self.size + self.rank) * self.micro_batch
            yield list(range(start, start + self.micro_batch))
            call += 1
