"""What the backwards of an iteration bring to parameters, to be held against a rerun."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ttrace.capture.tensor_bytes import digest_of, unwrapped


class Terms:
    """Sums of terms that wait to be given out: an entry for each time that some are, in order."""

    def __init__(self) -> None:
        self._parts: list[Mapping[str, torch.Tensor]] = []

    def add(self, sums: Mapping[str, torch.Tensor]) -> None:
        self._parts.append(sums)

    def differing(self, other: Terms) -> list[str]:
        """Names of parameters for which the other has others."""
        found: dict[str, None] = {}
        for k in range(max(len(self._parts), len(other._parts))):
            mine, theirs = self._part(k), other._part(k)
            names = {**mine, **theirs}
            found |= {n: None for n in names if digest_in(mine, n) != digest_in(theirs, n)}
        return list(found)

    def digest(self) -> str:
        return ",".join(digest_in(part, name) for part in self._parts for name in sorted(part))

    def _part(self, number: int) -> Mapping[str, torch.Tensor]:
        return self._parts[number] if number < len(self._parts) else {}


def digest_in(gradients: Mapping[str, torch.Tensor], name: str) -> str:
    """Empty: there is none of that name."""
    if name not in gradients:
        return ""
    gradient = unwrapped(gradients[name])
    return str(digest_of(gradient.to_dense() if gradient.is_sparse else gradient))
