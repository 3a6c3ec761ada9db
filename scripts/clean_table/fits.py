"""Which candidates compute what a model's reference computes: what megatron-core refuses, what is
another function in another topology, and its known bugs are left out of the space."""

from __future__ import annotations

from typing import Any

from clean_table.topology import Topology

Options = dict[str, Any]


def fits(options: Options, topology: Topology) -> bool:
    return (
        _divides(options, topology)
        and _is_accepted(options, topology)
        and _is_same_function(options, topology)
        and known_bug(options, topology) is None
    )


def _divides(options: Options, t: Topology) -> bool:
    calls, rest = divmod(options["global-batch"], t.dp * t.micro_batch)
    return (
        rest == 0
        and options["heads"] % t.tp == options["kv-groups"] % t.tp == 0
        and options["vocab"] % t.tp == options["ffn"] % t.tp == 0
        and (options.get("shared-expert-ffn") or 0) % t.tp == 0
        and options["layers"] % (t.pp * t.vpp) == 0
        and (t.cp == 1 or options["seq"] % (2 * t.cp) == 0)
        and (not t.sp or options["seq"] % (t.cp * t.tp) == 0)
        and (t.vpp == 1 or calls % t.pp == 0)
    )


def _is_accepted(options: Options, t: Topology) -> bool:
    """What the trainer or the library would refuse."""
    if options.get("experts"):
        # megatron-core trains experts with tensor parallelism in sequence-parallel form alone.
        if t.tp > 1 and not t.sp:
            return False
        if t.ep * t.expert_tp > t.processes // t.pp or options["experts"] % t.ep:
            return False
    elif t.ep > 1:
        return False
    # The distributed optimizer of megatron-core steps with Adam only.
    if t.distributed_optimizer and options.get("optimizer") == "sgd":
        return False
    # The zoo's attention under context parallelism has no dropout and no sinks.
    if t.cp > 1 and (options.get("dropout") or options.get("softmax")):
        return False
    # "recompute_num_layers must be 1 for MTP recompute"
    if options.get("mtp") and "--recompute-layers" in t.recompute and "1" not in t.recompute:
        return False
    # Refused by name: the last stage has an embedding of its own.
    return not (options.get("mtp") and t.pp > 1)


def _is_same_function(options: Options, t: Topology) -> bool:
    """Auxiliary losses and capacities are functions of the tokens that a router sees at once."""
    aux = options.get("aux-loss")
    same_rows = t.micro_batch == options["micro-batch"]
    if aux in ("aux_loss", "global_aux_loss") and not same_rows:
        return False
    # Its average runs over the calls of a step, with the tokens of all data-parallel ranks in each.
    if aux == "global_aux_loss" and t.dp > 1:
        return False
    # Each rank drops what is too much for it: of its part of a sequence that is another choice.
    return not options.get("capacity-factor") or (same_rows and t.tp == t.cp == 1)


def known_bug(options: Options, t: Topology) -> str | None:
    """Faults of megatron-core 0.16.1 itself: a run that has one is not clean."""
    if options.get("experts") and t.tp > 1 and t.ep == 1 and t.expert_tp == 1:
        return "experts with TP, EP 1 and ETP 1: gradients of experts are not reduced over TP"
    balanced = options.get("aux-loss") or options.get("z-loss")
    if balanced and options.get("per-token-loss") and t.tp * t.cp > 1:
        return "auxiliary losses per token are multiplied by the tokens of a rank's part alone"
    if options.get("label-smoothing") and t.tp > 1:
        return "label smoothing is over the part of the vocabulary that a TP rank has"
    if options.get("softmax") == "learnable" and t.tp > 1:
        return "learned sinks under TP"
    if options.get("mtp") and t.cp > 1 and not options.get("per-token-loss"):
        return "the loss of a further token is a mean of means over CP"
    return None
