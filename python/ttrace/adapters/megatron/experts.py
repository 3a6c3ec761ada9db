"""Rows of experts: which tokens a rank's experts get, from which ranks, in which order.

A dispatcher sends each token to the ranks of the experts that a router chose. What arrives at an
expert is, for each source rank, that rank's tokens for this expert in their own order. That is how
they are meant to lie; what lies there is for the check to find out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ttrace.adapters.megatron.structure import COLUMN, LINEAR_ARGUMENTS, ROW
from ttrace.adapters.megatron.topology import Topology
from ttrace.capture.placed import (
    ROUTING_MAP,
    ROUTING_MAP_USED,
    Batch,
    ModuleRule,
    Moment,
    Routed,
    RoutedRows,
    TensorRule,
)

GROUP = "experts"


class ExpertRules:
    """Of the modules of one chunk that work on routed rows."""

    def __init__(self, topology: Topology, config: Any) -> None:
        self._topology = topology
        self._config = config
        self.batch: Batch | None = None  # of the current call of the schedule
        self.sequence = 0  # its whole length, known when a router was called
        # Whether routing is the reference's, and which output of the router then says so.
        self.is_forced: Callable[[], bool] = lambda: False
        place = topology.placements
        self._whole, self._terms = "", place(etp="Partial(sum)")
        self._columns = place(etp="Shard(1)")
        self._gated = place(etp="StridedShard(1,2)")

    def module(self, kind: str | None, name: str) -> ModuleRule | None:
        if _is_padded(self._config):
            return None
        whole, terms = self._whole, self._terms
        if kind == "MLP":
            inputs = {"hidden_states": (whole, terms), "per_token_scale": (whole, terms)}
            return self._rule(name, inputs, (terms, whole), computes=False)
        if kind == COLUMN:
            gated = bool(self._config.gated_linear_unit) and name.endswith("linear_fc1")
            columns = self._gated if gated else self._columns
            return self._rule(name, {"input_": (whole, terms)}, (columns, columns))
        if kind == ROW:
            columns = self._columns
            return self._rule(name, {"input_": (columns, columns)}, (terms, whole))
        return None

    def _rule(
        self,
        name: str,
        inputs: dict[str, tuple[str, str]],
        output: tuple[str, str],
        computes: bool = True,
    ) -> ModuleRule:
        """Each with its placements, and those of its gradient: a sum over etp has been pending
        since the dispatcher gave all of etp the same rows."""
        arguments = LINEAR_ARGUMENTS if "input_" in inputs else None
        return ModuleRule(
            {arg: self._choice(name, *words) for arg, words in inputs.items()},
            {"0": self._choice(name, *output)},
            computes,
            arguments,
        )

    def _choice(
        self, name: str, placements: str, of_gradient: str
    ) -> Callable[[torch.Tensor], TensorRule | None]:
        layer, _, rest = name.partition(".experts.local_experts.")
        expert = int(rest.partition(".")[0])

        def choose(value: torch.Tensor) -> TensorRule | None:
            if self.batch is None or not self.sequence or not value.dim():
                return None
            arg = ROUTING_MAP_USED if self.is_forced() else ROUTING_MAP
            tokens = self.sequence * self.batch.global_rows
            rows = RoutedRows(f"{layer}.router", arg, expert, GROUP, tokens)
            routed = Routed(rows, self._tokens, self._topology.coordinate_of("edp", "ep", "etp"))
            return TensorRule(placements, grad_placements=of_gradient, routed=routed)

        return choose

    def _tokens(self, chosen: torch.Tensor, moment: Moment) -> torch.Tensor:
        """The tokens of this rank's rows, given which of all are sent to the expert: [sequence,
        rows of the global batch]."""
        topology, batch = self._topology, moment.batch
        forward = (moment.micro_batch - topology.coordinate["dp"]) // topology.size["dp"]
        found = []
        for rank in sources(topology, self._config):
            at = topology.coordinate_in_stage(rank)
            micro_batch = forward * topology.size["dp"] + at["dp"]
            begin = micro_batch * batch.micro_batch_size
            rows = torch.arange(begin, begin + batch.micro_batch_size)
            positions = _positions(topology, at, chosen.shape[0])
            sent = chosen[positions][:, rows].flatten()
            number = (rows[None, :] * chosen.shape[0] + positions[:, None]).flatten()
            found.append(number[sent])
        return torch.cat(found)


def _positions(topology: Topology, at: dict[str, int], length: int) -> torch.Tensor:
    """Of the sequence: cut in zigzag over cp, and what is left over tp."""
    positions = torch.arange(length)
    cp = topology.size["cp"]
    if cp > 1:
        chunks = positions.chunk(2 * cp)
        positions = torch.cat([chunks[at["cp"]], chunks[2 * cp - 1 - at["cp"]]])
    if topology.sequence_parallel:
        positions = positions.chunk(topology.size["tp"])[at["tp"]]
    return positions


def sources(topology: Topology, config: Any) -> list[int]:
    """Ranks whose tokens come to this one's experts, by their number in the stage, in order."""
    ep, etp = topology.size["ep"], topology.size["etp"]
    first = topology.coordinate["edp"] * ep * etp
    if getattr(config, "moe_token_dispatcher_type", "") == "allgather":
        return [first + r * etp + t for r in range(ep) for t in range(etp)]
    return [first + r * etp + t for t in range(etp) for r in range(ep)]


def global_sources(topology: Topology, config: Any) -> list[int]:
    """The same by global rank."""
    from megatron.core import parallel_state as ps

    group = ps.get_expert_tensor_and_model_parallel_group()
    ranks = dist.get_process_group_ranks(group)
    first = topology.coordinate["edp"] * len(ranks)
    return [ranks[place - first] for place in sources(topology, config)]


def scores(router: Any, logits: torch.Tensor) -> torch.Tensor | None:
    """What the largest are chosen of, [tokens, experts]; None if it is not that simple."""
    config = router.config
    by_groups = getattr(config, "moe_router_num_groups", None)
    if by_groups or "sinkhorn" in str(getattr(config, "moe_router_load_balancing_type", "")):
        return None
    logits = logits.reshape(-1, logits.shape[-1]).float()
    if getattr(router, "score_function", "softmax") != "sigmoid":
        return logits  # in the order of their softmax
    bias = getattr(router, "expert_bias", None)
    chosen = torch.sigmoid(logits)
    return chosen if bias is None else chosen + bias.float()


def _is_padded(config: Any) -> bool:
    """Rows that are no token's lie among the others."""
    return bool(
        getattr(config, "moe_pad_expert_input_to_capacity", False)
        or getattr(config, "moe_router_padding_for_quantization", False)
        or getattr(config, "moe_router_padding_for_fp8", False)
    )
