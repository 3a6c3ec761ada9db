"""What the torch optimizers inside Megatron's compute a step with, by the model's parameters."""

from __future__ import annotations

from typing import Any

from ttrace.adapters.megatron.model import Model
from ttrace.adapters.megatron.optimizer_state import model_parameters, parts
from ttrace.capture import hyperparameters


def note_step(model: Model, optimizer: Any) -> None:
    """At the entry of Megatron's optimizer step."""
    names = {id(entry.original): entry.fqn for entry in model.parameters()}
    steps = []
    for part in parts(optimizer):
        for tensor, parameter in model_parameters(part).items():
            if id(parameter) in names:
                names[tensor] = names[id(parameter)]
        clip = float(getattr(part.config, "clip_grad", 0.0) or 0.0)
        # Megatron's word for "not at all" is 0.
        steps.append((part.optimizer, {"clip_grad": clip if clip > 0.0 else None}))
    hyperparameters.note_step(
        model.session, model.session.iteration, steps, lambda tensor: names.get(id(tensor))
    )
