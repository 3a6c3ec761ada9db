"""T6: with sequence parallelism the gradient of a router is not summed over the TP ranks.

Each tensor-parallel rank routes its own part of the sequence, so that it has a part of the
router's gradient. What adds up such parts asks for an attribute of the parameter. Without it the
copies of the router drift apart.

Source: arXiv 2506.09280, bug 6. Needs: TP+SP, experts.
"""

from __future__ import annotations

from typing import Any

ID = "T6"
TITLE = "SP: router gradients not reduced over TP"
SOURCE = "arXiv 2506.09280, bug 6"
NPROC = 2
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--tp", "2", "--sp", "--etp", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.router\.weight"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """The router's weight gets its values, and not the attribute."""
    from megatron.core.transformer.moe import router

    # Before 0.13 the constructor sets it.
    name = "reset_parameters" if hasattr(router.Router, "reset_parameters") else "__init__"
    begin = getattr(router.Router, name)

    def begin_without_mark(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        self.weight.sequence_parallel = False

    setattr(router.Router, name, begin_without_mark)
