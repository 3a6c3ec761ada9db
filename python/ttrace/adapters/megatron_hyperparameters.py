"""The torch optimizers inside Megatron's, and what their parameters are called.

Masters in fp32 and shards of a flat buffer are updated in place of the model's own parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ttrace.adapters.megatron_model import Model
from ttrace.capture import hyperparameters

# Lists of groups of model parameters, and of what the optimizer holds in their place.
_PAIRS = (
    ("float16_groups", "fp32_from_float16_groups"),
    ("model_float16_groups", "shard_float16_groups"),
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
    ("model_fp32_groups", "shard_fp32_groups"),
)


def note_step(model: Model, optimizer: Any) -> None:
    """At the entry of Megatron's optimizer step."""
    names = {id(entry.original): entry.fqn for entry in model.parameters()}
    steps = []
    for part in _parts(optimizer):
        _name_masters(part, names)
        clip = float(getattr(part.config, "clip_grad", 0.0) or 0.0)
        # Megatron's word for "not at all" is 0.
        steps.append((part.optimizer, {"clip_grad": clip if clip > 0.0 else None}))
    hyperparameters.note_step(
        model.session, model.session.iteration, steps, lambda tensor: names.get(id(tensor))
    )


def _parts(optimizer: Any) -> Iterator[Any]:
    """Those that hold a torch optimizer; a rank of a stage without parameters has none."""
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        if hasattr(getattr(part, "optimizer", None), "param_groups"):
            yield part


def _name_masters(part: Any, names: dict[int, str]) -> None:
    for own, held in _PAIRS:
        groups = zip(getattr(part, own, None) or (), getattr(part, held, None) or (), strict=False)
        for parameters, masters in groups:
            for parameter, master in zip(parameters, masters, strict=False):
                if master is not None and id(parameter) in names:
                    names[id(master)] = names[id(parameter)]
