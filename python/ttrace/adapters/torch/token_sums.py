"""Modules whose gradients are sums over tokens of what goes through their edges, and nothing else.

Kernels may add tokens up in low precision; the check makes these sums again in double.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn

from ttrace.adapters.torch.wrappers import canonical_name


def token_sums(root: nn.Module) -> dict[str, Any]:
    """The note `token_sums`: layer norms over one dimension, and tables. None with a parameter that
    another module uses, too."""
    uses = Counter(
        id(parameter) for module in root.modules() for parameter in module.parameters(recurse=False)
    )
    norms: dict[str, float] = {}
    tables: dict[str, int] = {}
    for name, module in root.named_modules():
        own = list(module.parameters(recurse=False))
        if any(uses[id(parameter)] > 1 for parameter in own):
            continue
        fqn = canonical_name(name)
        if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
            norms[fqn] = module.eps
        elif isinstance(module, nn.Embedding):
            plain = module.max_norm is None and not module.scale_grad_by_freq
            if plain and not module.sparse:
                tables[fqn] = -1 if module.padding_idx is None else module.padding_idx
    return {"norms": norms, "tables": tables}
