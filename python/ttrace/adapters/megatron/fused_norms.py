"""Norms that are part of the linear behind them, as in TransformerEngine's specification.

What such a module is given, and the parameters of its norm, are what another specification has in
a module of its own: they are recorded under that module's names, so that one run is compared with
the other. What passes between norm and linear exists in one of the two only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

# Of the module that does both: the name of each parameter in a norm of its own.
_PARAMETERS = {"layer_norm_weight": "weight", "layer_norm_bias": "bias"}
# (block of a layer, its first linear) -> the norm before it, in the layer.
_NORMS = {
    ("self_attention", "linear_qkv"): "input_layernorm",
    ("mlp", "linear_fc1"): "pre_mlp_layernorm",
}
_IDENTITY = "IdentityOp"
_GIVEN, _MADE = ("input", "grad_input"), ("output", "grad_output")


@dataclass(frozen=True)
class FusedNorm:
    """The norm called `fqn` elsewhere, which is part of the module `within`."""

    fqn: str
    within: str
    cls: str
    block: str  # hands the module what the norm elsewhere made
    parameters: tuple[str, ...]  # of the norm, as the module calls them

    def absent(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """(module, roles) of what a run with a norm of its own has beside this one."""
        yield self.fqn, _MADE
        yield self.within, _GIVEN
        yield self.block, _GIVEN

    def real_names(self) -> Iterable[tuple[str, str]]:
        """(name under which something is recorded, what it is in this model)."""
        yield self.fqn, self.within
        for name in self.parameters:
            yield f"{self.fqn}.{_PARAMETERS[name]}", f"{self.within}.{name}"


class FusedNorms:
    """Of one chunk of a model. To be shown layers before what is in them is asked for."""

    def __init__(self) -> None:
        self.found: dict[str, FusedNorm] = {}  # by the module that they are part of

    def see_layer(self, layer: nn.Module, name: str) -> None:
        for (block_name, linear_name), norm in _NORMS.items():
            own, linear = _child(layer, norm), _child(_child(layer, block_name), linear_name)
            if linear is None or not _normalises(linear):
                continue
            if own is not None and type(own).__name__ != _IDENTITY:
                continue  # it is normalised twice: which of the two is the other's, nobody says
            within = f"{name}.{block_name}.{linear_name}"
            names = tuple(n for n in _PARAMETERS if linear._parameters.get(n) is not None)
            self.found[within] = FusedNorm(
                f"{name}.{norm}", within, type(linear).__name__, f"{name}.{block_name}", names
            )

    def within(self, linear: str) -> FusedNorm | None:
        """The norm that the module `linear` does, if there is one whose name elsewhere is known."""
        return self.found.get(linear)

    def feeds(self, block: str) -> bool:
        """Whether `block` is given what a norm elsewhere has made."""
        return any(norm.block == block for norm in self.found.values())

    def parameter(self, owner: str, slot: str) -> str | None:
        """The name under which a norm's parameter is recorded; None: it is not one."""
        norm = self.found.get(owner)
        if norm is None or slot not in norm.parameters:
            return None
        return f"{norm.fqn}.{_PARAMETERS[slot]}"


def _child(module: nn.Module | None, name: str) -> nn.Module | None:
    """Inside of torch.compile's wrapper, where it has one."""
    child = None if module is None else module._modules.get(name)
    return None if child is None else child._modules.get("_orig_mod", child)


def _normalises(linear: nn.Module) -> bool:
    return linear._parameters.get("layer_norm_weight") is not None


def is_of_norm(slot: str) -> bool:
    return slot in _PARAMETERS
