"""Computation in eight bits or fewer, which the dtypes of tensors between modules do not show.

TransformerEngine's linears ask a global of that library whether they quantise; a recipe of their
own may say so, too. Other libraries put modules of their own classes, or parameters that are tensor
subclasses, in the place of torch's. All is found by names: only what the user's program has
imported is looked at, and nothing is imported for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FP8 = "fp8"
# Where different releases keep the global.
_MODULES = ("transformer_engine.pytorch.quantization", "transformer_engine.pytorch.fp8")

# Packages whose classes quantise if their names say so. A class of the user's that is called
# "Quantizer" may be a codebook, which is exact.
_PACKAGES = ("torchao", "bitsandbytes", "transformers.integrations")
_FORMAT = re.compile(r"(fp|float|int|nf|mx\w*|nvfp)[2468](?![0-9])|[248]bit|^mx|quant|bitnet", re.I)
# Known wherever they are defined: programs carry copies of these.
_CLASSES = frozenset({"Float8Linear", "FP8Linear", "MXLinear", "MXFP8Linear", "NVFP4Linear"})


def in_fp8(module: Any) -> bool:
    """Whether `module`, which is about to compute or has just computed, does so in FP8."""
    # Set by the library within the forward, together with the scales.
    # Not by getattr alone: what a module does not have costs it an exception, at every call.
    has = "fp8" in vars(module) or hasattr(type(module), "fp8")
    if has and module.fp8 is True and hasattr(module, "fp8_meta"):
        return True
    for name in _MODULES:
        manager = getattr(sys.modules.get(name), "FP8GlobalStateManager", None)
        if manager is not None and manager.is_fp8_enabled():
            return True
    return False


@dataclass
class Quantised:
    """Modules of a model that compute with values of few bits, all by one class."""

    name: str  # of the class, with its library where that is one
    first: str  # the first module
    count: int = 1

    @property
    def what(self) -> str:
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        return f"{self.name} ({self.first or 'the model'}{more})"


def quantised(modules: Iterable[tuple[str, Any]]) -> list[Quantised]:
    """What of `modules`, each with its name, quantises what it computes with, by class."""
    found: dict[str, Quantised] = {}
    for fqn, module in modules:
        kinds = [type(module), *(type(p) for p in vars(module).get("_parameters", {}).values())]
        name = next(filter(None, map(_quantising_class, kinds)), None)
        if name is None:
            continue
        if name in found:
            found[name].count += 1
        else:
            found[name] = Quantised(name, fqn)
    return list(found.values())


def _quantising_class(kind: type) -> str | None:
    """The class of `kind` or of what it is derived from that quantises."""
    for base in kind.__mro__:
        package = base.__module__
        of_library = any(package == name or package.startswith(f"{name}.") for name in _PACKAGES)
        if of_library and _FORMAT.search(base.__name__):
            return f"{package.partition('.')[0]} {base.__name__}"
        if base.__name__ in _CLASSES:
            return base.__name__
    return None
