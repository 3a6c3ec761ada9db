"""The loops of zoo/honest, and what each can be told."""

from __future__ import annotations

from dataclasses import dataclass

EVERYWHERE = ("rows", "same", "hook")
FAULTS = (
    *EVERYWHERE,
    *("padding", "lengths", "factor", "statistic", "noise", "pairs", "labels"),
)


@dataclass(frozen=True)
class Kind:
    """A loop. `faults` are those that it can have beside the ones of every loop."""

    name: str
    faults: tuple[str, ...] = ()
    pads: bool = False
    # Whether its loss has as many terms for each row: only then may ranks average their means.
    counts_rows: bool = True
    # Of a loop that looks at what all ranks have in a micro-batch: that is the whole batch.
    sees_batch: bool = False
    # Rows of ranks are gathered, which takes as many of each.
    even: bool = False
    scales: tuple[str, ...] = ("mean", "global", "hook", "after")
    deals: tuple[str, ...] = ("contiguous", "strided", "permuted", "blocks")
    # The library whose loop, model or batches these are: requirements-loops.txt.
    needs: str = ""
    # The library's own loop deals out, pads and averages: the faults of every loop have no place.
    is_closed: bool = False


KINDS = (
    Kind("regression", ("labels",)),
    Kind("images", ("labels", "noise")),
    Kind("language", ("labels", "padding", "lengths"), pads=True, counts_rows=False),
    Kind("masked_language", ("labels", "padding", "lengths"), pads=True),
    Kind("translation", ("labels", "padding", "lengths"), pads=True),
    Kind("tagger", ("labels", "padding"), pads=True, counts_rows=False),
    Kind("packed", ("lengths",), pads=True, counts_rows=False),
    Kind("two_views", ("noise", "pairs", "statistic"), sees_batch=True, even=True),
    Kind("two_towers", ("pairs", "statistic"), sees_batch=True, even=True, scales=("mean",)),
    Kind("siamese", ("labels", "pairs")),
    Kind("triplets", ("pairs",)),
    Kind("preferences", ("pairs", "padding", "lengths"), pads=True),
    Kind("adversarial", ("noise", "labels")),
    Kind("variational", ("noise",)),
    Kind("diffusion", ("noise",)),
    Kind("q_learning", ("labels", "pairs")),
    Kind("policy", ("labels", "statistic"), sees_batch=True),
    Kind("distillation", ("labels", "pairs")),
    Kind("experts", ("labels", "statistic"), sees_batch=True),
    Kind("bags", ("labels", "lengths"), pads=True),
    Kind("factorisation", ("labels", "pairs")),
    Kind("graphs", ("labels", "lengths"), pads=True),
    Kind("points", ("labels", "padding", "lengths"), pads=True),
    Kind("detection", ("labels",), pads=True, counts_rows=False),
    Kind("segmentation", ("labels", "padding"), pads=True, counts_rows=False),
    Kind("key_queue", ("noise", "pairs", "statistic"), sees_batch=True, even=True),
    Kind("slow_teacher", ("noise", "pairs")),
    Kind("speech", ("labels", "lengths"), pads=True),
    Kind("waves", ("labels",)),
    Kind("physics", ("labels",)),
    Kind("inner_loop", ("labels", "pairs")),
    Kind("low_rank", ("labels", "padding"), pads=True, counts_rows=False),
    Kind("many_tasks", ("labels", "pairs")),
    Kind("growing", ("labels", "padding"), pads=True, counts_rows=False),
    Kind("closure", ("labels",)),
    Kind("sharpness", ("labels",)),
    Kind("sparse", ("labels",)),
    Kind("half_precision", ("labels",)),
    Kind("checkpointed", ("labels", "lengths"), pads=True, counts_rows=False),
    Kind("compiled", ("labels",)),
    Kind("running_mean", ("labels", "statistic")),
    Kind("patches", ("labels", "noise")),
    Kind("forecast", ("labels",), counts_rows=False, scales=("global", "hook", "after")),
    Kind("of_geometric", ("labels",), pads=True, needs="torch_geometric"),
    Kind("of_metric_learning", ("labels", "statistic"), sees_batch=True, even=True,
         scales=("mean",), needs="pytorch_metric_learning"),
    Kind("of_diffusers", ("noise",), needs="diffusers"),
    Kind("of_lightning", ("labels",), even=True, scales=("mean",), needs="lightning",
         is_closed=True),
    Kind("of_transformers", pads=True, even=True, deals=("contiguous",), scales=("global",),
         needs="transformers", is_closed=True),
    Kind("of_trl_tuning", pads=True, even=True, deals=("contiguous",), scales=("global",),
         needs="trl", is_closed=True),
    Kind("of_trl_preferences", pads=True, even=True, deals=("contiguous",), scales=("mean",),
         needs="trl", is_closed=True),
    Kind("of_sentence_transformers", even=True, deals=("contiguous",), scales=("mean",),
         needs="sentence_transformers", is_closed=True),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
