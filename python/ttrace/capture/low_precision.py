"""FP8 that a context switches on, whatever the configuration of the run says.

TransformerEngine's linears ask a global of that library whether they quantise; a recipe of their
own may say so, too. The library is looked at only if the user's program has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

FP8 = "fp8"
# Where different releases keep the global.
_MODULES = ("transformer_engine.pytorch.quantization", "transformer_engine.pytorch.fp8")


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
