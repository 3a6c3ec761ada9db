"""What a batch made by hand is compared with: the targets that never enter the model.

Where no loader hands out inputs and targets together, targets are seen when the loop gives them to
one of torch's loss functions together with what the model returned. (The modules of torch.nn call
these functions too.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from ttrace.capture.patches import Patches

# The second argument is the target.
_LOSSES = (
    *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss"),
    *("multilabel_margin_loss", "multilabel_soft_margin_loss", "multi_margin_loss"),
    *("soft_margin_loss", "hinge_embedding_loss", "linear_cross_entropy"),
)


def watch(patches: Patches, replaced: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    """`replaced(target)` returns what the loss function gets in its place, or None."""
    for name in _LOSSES:
        patches.wrap_static(functional, name, _around(replaced))


def _around(replaced: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[..., Any]:
    def around(original: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        made = args[0] if args else kwargs.get("input")
        target = args[1] if len(args) > 1 else kwargs.get("target")
        if torch.is_tensor(made) and made.requires_grad and torch.is_tensor(target):
            other = replaced(target)
            if other is not None:
                if len(args) > 1:
                    args = (args[0], other, *args[2:])
                else:
                    kwargs = {**kwargs, "target": other}
        return original(*args, **kwargs)

    return around
