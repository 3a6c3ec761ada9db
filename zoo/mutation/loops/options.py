"""Which loop it is."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

MODELS = ("language", "encoder", "images", "perceptron")
OPTIMIZERS = ("adamw", "adam", "sgd")
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class LoopOptions:
    """`ranks` share a batch by DistributedDataParallel, or, with `tensor`, cut the model."""

    model: str = "language"
    optimizer: str = "adamw"
    precision: str = "fp32"
    accumulate: int = 1
    clip: float = 0.0  # 0: not
    hook: bool = False  # a communication hook of the loop's own reduces gradients
    tensor: bool = False
    sequence: bool = False  # parallel, too
    ranks: int = 1

    @property
    def data_parallel(self) -> bool:
        return self.ranks > 1 and not self.tensor

    def words(self) -> list[str]:
        """The arguments that give these options, but for the ranks."""
        words = [f"--{name}={getattr(self, name)}" for name in _VALUES]
        return words + [f"--{name}" for name in _FLAGS if getattr(self, name)]


_VALUES = ("model", "optimizer", "precision", "accumulate", "clip")
_FLAGS = ("hook", "tensor", "sequence")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=MODELS, default="language")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--clip", type=float, default=0.0, help="norm of gradients; 0: any")
    parser.add_argument("--hook", action="store_true", help="reduce gradients in a hook")
    parser.add_argument("--tensor", action="store_true", help="cut the language model by DTensor")
    parser.add_argument("--sequence", action="store_true", help="sequence parallel, too")


def options_of(parsed: argparse.Namespace, ranks: int) -> LoopOptions:
    names = (*_VALUES, *_FLAGS)
    return LoopOptions(**{name: getattr(parsed, name) for name in names}, ranks=ranks)
