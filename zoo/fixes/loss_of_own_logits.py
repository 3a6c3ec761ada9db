"""The loss over a vocabulary that is cut gets each rank's own logits, also from a model whose
logits are gathered for its callers."""

from __future__ import annotations

from typing import Any


def apply() -> None:
    from megatron.core.models.gpt import GPTModel

    forward = GPTModel.forward

    def with_own_logits(self: Any, *args: Any, labels: Any = None, **named: Any) -> Any:
        if labels is not None:
            named["runtime_gather_output"] = False
        return forward(self, *args, labels=labels, **named)

    GPTModel.forward = with_own_logits
