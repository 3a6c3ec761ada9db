"""HF1: the loss is the mean of the micro-batches' means.

The mean over all tokens of a step needs one division, by their number. Where each micro-batch
divides by its own tokens and the results are averaged, a token of a short sample weighs more than
one of a long sample. With equal numbers of tokens both are the same.

Source: transformers pull request 34191. Needs: several micro-batches with unequal token counts.
"""

from __future__ import annotations

from typing import Any

ID = "HF1"
TITLE = "Loss: mean of micro-batch means with unequal token counts"
SOURCE = "transformers pull request 34191"
NPROC = 2
SHARED_FLAGS = ["--loss-mask", "uneven", "--per-token-loss"]
FLAGS = [*SHARED_FLAGS]
EXPECT = {
    "fqn": [r"loss"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["L"],
}


def inject() -> None:
    """The script's loss function returns each micro-batch's mean, as if of one token."""
    import sys

    import torch

    trainer = sys.modules["__main__"]
    loss_func = trainer.loss_func

    def mean_of_the_micro_batch(*args: Any) -> Any:
        loss, tokens, report = loss_func(*args)
        return loss / tokens, torch.ones_like(tokens), report

    trainer.loss_func = mean_of_the_micro_batch
