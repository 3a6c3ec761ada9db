"""Parameter gradients of one iteration, before and after reduction."""

from __future__ import annotations

import struct
from typing import Any

import torch

from ttrace.adapters.megatron_loss_scale import divided
from ttrace.adapters.megatron_model import Model, ParameterEntry
from ttrace.adapters.megatron_names import TIED_WEIGHT, is_tied
from ttrace.adapters.megatron_unsupported import is_sharded, uses_distributed_optimizer
from ttrace.capture.gradient_norms import note_norms
from ttrace.capture.placed import Scale


class Gradients:
    """Records gradients of the current leg and iteration."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._local_done: set[str] = set()
        self.reduction_order: list[str] = []
        self._loss_scale = 1.0  # of the iteration that runs, or ran last
        # With a distributed optimizer only a rank's own shard of main_grad is reduced.
        self._reduced_are_whole = not uses_distributed_optimizer(model) and not is_sharded(model)
        self._said = False

    def begin(self) -> None:
        self._local_done.clear()
        self.reduction_order.clear()

    def before_reduction(self, group: Any) -> None:
        """At the entry of a bucket group's reduction, whether it overlaps with backward or not.
        Scaling by 1 / (dp * cp) happens right after."""
        for bucket in group.buckets:
            for parameter in bucket.params_list:
                entry = self._model.entry_of(parameter)
                if entry is not None:
                    self._record_local(entry)

    def after_backward(self) -> None:
        """What nobody reduced is local still."""
        for entry in self._model.parameters():
            if entry.fqn not in self._local_done and gradient_of(entry) is not None:
                self._record_local(entry)
        self._zero_term_of_tied_weight()

    def _record_local(self, entry: ParameterEntry) -> None:
        gradient = gradient_of(entry)
        if gradient is None or entry.fqn in self._local_done:
            return
        self._local_done.add(entry.fqn)
        self.reduction_order.append(entry.fqn)
        self._record("grad_local", entry.fqn, gradient, entry)

    def _record(self, role: str, fqn: str, gradient: torch.Tensor, entry: ParameterEntry) -> None:
        local = role == "grad_local"
        self._model.session.record(
            fqn,
            role,
            "",
            gradient,
            entry.rule.local_placements if local else entry.rule.placements,
            iteration=self._model.session.iteration,
            pass_="backward",
            scale=self._scale(entry.rule.local_scale if local else (1, 1)),
            reduced_over=() if local else entry.rule.reduced_over,
        )

    def _zero_term_of_tied_weight(self) -> None:
        """The gradient of a tied embedding is the sum of the first and the last stage's terms.

        As placements go that is Partial over pp, of which every stage must hold a term. Stages in
        between have no copy of the weight; their term is zero, and is written as such.
        """
        topology, root = self._model.topology, self._model.chunks[0].root
        stages, stage = topology.size["pp"], topology.coordinate["pp"]
        if stages <= 2 or not is_tied(root) or stage in (0, stages - 1):
            return
        like = next((e for e in self._model.parameters() if gradient_of(e) is not None), None)
        if like is None:
            return
        gradient = gradient_of(like)
        assert gradient is not None
        shape = (root.vocab_size // topology.size["tp"], root.config.hidden_size)
        zeros = torch.zeros((), dtype=gradient.dtype).expand(shape)
        rule = self._model.chunks[0].rules.tied_weight()
        self._model.session.record(
            TIED_WEIGHT,
            "grad_local",
            "",
            zeros,
            rule.local_placements,
            iteration=self._model.session.iteration,
            pass_="backward",
            scale=self._scale(rule.local_scale),
        )

    def _scale(self, scale: Scale) -> Scale:
        if self._model.batch is not None:
            self._loss_scale = self._model.batch.loss_scale
        return divided(scale, self._loss_scale)

    def reduced(self) -> None:
        """As the optimizer finds them."""
        if not self._reduced_are_whole:
            self._say_not_recorded()
            return
        found = []
        for entry in self._model.parameters():
            gradient = gradient_of(entry)
            if gradient is not None:
                self._record("grad_reduced", entry.fqn, gradient, entry)
                found.append((entry.fqn, gradient))
        session = self._model.session
        note_norms(session, session.iteration, found)

    def _say_not_recorded(self) -> None:
        if self._said:
            return
        self._said = True
        reason = "no rank holds the whole reduced gradient"
        for entry in self._model.parameters():
            self._model.session.note(
                "not_recorded", fqn=entry.fqn, role="grad_reduced", arg="", reason=reason
            )

    def fingerprint(self) -> list[bytes]:
        """Enough to notice that the user's loop changed gradients. Not for comparing runs. Bits, as
        a NaN is not equal to itself."""
        found = []
        for entry in self._model.parameters():
            gradient = gradient_of(entry)
            if gradient is not None and gradient.numel():
                values = torch.stack([gradient.sum(), gradient.abs().max()]).double()
                found.append(struct.pack("2d", *values.tolist()))
        return found


def gradient_of(entry: ParameterEntry) -> torch.Tensor | None:
    gradient = getattr(entry.original, "main_grad", None)
    return entry.original.grad if gradient is None else gradient
