"""The loss over a vocabulary that is cut gets the rank's own logits, also where they are gathered
for the model's callers."""

from __future__ import annotations

import torch


def apply() -> None:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.tensor_parallel import scatter_to_tensor_model_parallel_region

    loss = GPTModel.compute_language_model_loss

    def of_own_logits(self: GPTModel, labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        if not self.parallel_output:
            logits = scatter_to_tensor_model_parallel_region(logits).clone()
        return loss(self, labels, logits)

    GPTModel.compute_language_model_loss = of_own_logits
