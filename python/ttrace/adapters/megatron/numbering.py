"""What Megatron derives from the number of a layer, beside what counting the layers gives.

Numbers are counted from one over the whole model. A stage that numbers its layers wrongly builds
modules that are right in every other respect: the deviation is reported as an attribute, and
names no culprit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn


def numbering_mismatches(
    root: nn.Module, config: Any, first_layer: int
) -> Iterator[tuple[str, str, Any, Any]]:
    """(name of a module, attribute, its value, the expected one) where these are not equal.

    `first_layer` is the number of layers on the stages before.
    """
    decoder = getattr(root, "decoder", None)
    for index, layer in enumerate(getattr(decoder, "layers", ())):
        number = first_layer + index + 1
        for name, module in layer.named_modules(prefix=f"decoder.layers.{number - 1}"):
            value = getattr(module, "layer_number", None)
            if value is not None and value != number:
                yield name, "layer_number", value, number
            # Others that have a window write "none" in other ways.
            if type(module).__name__ == "FusedScaleMaskSoftmax":
                window = window_of_layer(config, number)
                # Older versions have no windows.
                found = getattr(module, "window_size", window)
                if found != window:
                    yield name, "window_size", str(found), str(window)


def window_of_layer(config: Any, number: int) -> tuple[int, int] | None:
    """As the configuration's documentation says: every k-th layer attends to all tokens, or a list
    says of each layer whether it has the window."""
    window = getattr(config, "window_size", None)
    skip = getattr(config, "window_attn_skip_freq", None)
    if not window or skip is None:
        return window or None
    has_window = bool(skip[number - 1]) if isinstance(skip, list) else number % skip != 0
    return window if has_window else None
