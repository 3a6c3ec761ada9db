"""What is told of a Megatron model before its first step: what is not observed, what is unusual,
what this version cannot judge.

None of it decides what is recorded, so that a name that another version of Megatron lacks costs a
note and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ttrace.adapters.megatron import names
from ttrace.adapters.megatron.model import Chunk, Model, ParameterEntry
from ttrace.adapters.megatron.numbering import numbering_mismatches
from ttrace.adapters.megatron.private_names import MEGATRON
from ttrace.adapters.megatron.structure import is_expert
from ttrace.adapters.megatron.unsupported import unsupported
from ttrace.adapters.torch.private_names import TORCH
from ttrace.capture import source_lines
from ttrace.capture.private_names import looked_up, missing

_VOCABULARY = (
    "--make-vocab-size-divisible-by N: such that N times the tensor-parallel size is equal in both"
    " runs, or --vocab-size, so that both pad to the same size"
)


def write_notes(model: Model) -> None:
    """At the start of capture."""
    for part in (
        _note_private_names,
        _note_modules,
        _note_fused_norms,
        _note_parameters,
        _note_unsupported,
        _note_computation,
        _note_numbering,
        _note_attributes,
        _note_scaling,
    ):
        _attempt(model, part)


def _attempt(model: Model, part: Callable[[Model], None]) -> None:
    try:
        part(model)
    except OSError:
        raise
    except Exception as error:
        what = part.__name__.strip("_").replace("_", " ")
        text = f"{what}: not possible with this megatron-core: {type(error).__name__}: {error}"
        model.session.note("notice", text=text)


def _note_private_names(model: Model) -> None:
    for text in missing((*MEGATRON, *TORCH)):
        model.session.note("notice", text=text)


def _note_modules(model: Model) -> None:
    note = model.session.note
    named: dict[str, nn.Module] = {}
    for chunk in model.chunks:
        named.update(chunk.named)
        for fqn, kind, reason in chunk.unknown:
            note("not_observed", **{"fqn": fqn, "class": kind, "reason": reason})
        for fqn in chunk.compiled:
            reason = "compiled by torch.compile: its interior is not observed"
            note("compiled", fqn=fqn, reason=reason)
        for fqn, (module, rule) in chunk.known.items():
            for child in rule.not_materialised:
                reason = f"fused into {type(module).__name__}"
                note("not_materialised", fqn=f"{fqn}.{child}", reason=reason)
    note("modules", classes={fqn: type(module).__name__ for fqn, module in named.items()})
    source_lines.note_modules(model.session, named.items())


def _note_fused_norms(model: Model) -> None:
    note = model.session.note
    for chunk in model.chunks:
        for norm in chunk.rules.fused_norms.found.values():
            note(
                "fused",
                **{"fqn": norm.fqn, "within": norm.within, "class": norm.cls},
                names=dict(norm.real_names()),
                absent={fqn: list(roles) for fqn, roles in norm.absent()},
            )


def _note_parameters(model: Model) -> None:
    grafted = model.session.settings.graft is not None
    for chunk in model.chunks:
        for name in chunk.unused_parameters:
            text = f"{name} of the last stage is not used: the head has the embedding's weight"
            model.session.note("notice", text=text)
        for fqn, reason in chunk.refused_parameters:
            for role in ("param", "grad_local", "grad_reduced", "param_updated"):
                model.session.note("not_recorded", fqn=fqn, role=role, arg="", reason=reason)
            if grafted:
                model.session.note(
                    "not_grafted",
                    what="weights",
                    fqn=fqn,
                    iteration=model.session.iteration,
                    reason=reason,
                    way_out="give both runs the same initial weights",
                )


def _note_unsupported(model: Model) -> None:
    for what, reason, way_out in unsupported(model):
        model.session.unsupported(what, reason, way_out)


def _note_computation(model: Model) -> None:
    """The padding takes part in the softmax: models of other padding are other functions."""
    size = getattr(model.chunks[0].root, "vocab_size", None)
    if isinstance(size, int):
        model.session.note("computation", name="padded_vocab_size", value=size, option=_VOCABULARY)


def _note_numbering(model: Model) -> None:
    for chunk in model.chunks:
        for fqn, name, value, expected in numbering_mismatches(
            chunk.root, chunk.config, chunk.numbering.first_layer
        ):
            model.session.note("attribute", fqn=fqn, name=name, value=value, expected=expected)


def _note_attributes(model: Model) -> None:
    """Attributes that Megatron reduces and slices by, where they are not as expected."""
    for entry in model.parameters():
        for name, value, expected in _attributes(model, entry):
            if value != expected:
                model.session.note(
                    "attribute", fqn=entry.fqn, name=name, value=value, expected=expected
                )


def _attributes(model: Model, entry: ParameterEntry) -> Iterator[tuple[str, Any, Any]]:
    parameter, topology = entry.original, model.topology
    if topology.sequence_parallel:
        expected = "tp" in entry.rule.reduced_over
        value = bool(getattr(parameter, "sequence_parallel", False))
        yield "sequence_parallel", value, expected
    cut = "etp" if is_expert(entry.fqn) else "tp"
    if topology.size[cut] > 1:
        expected = f"{cut}:" in entry.rule.placements
        value = bool(getattr(parameter, "tensor_model_parallel", False))
        yield "tensor_model_parallel", value, expected
    if topology.size["pp"] > 1:
        expected = "pp" in entry.rule.reduced_over
        value = bool(getattr(parameter, "shared_embedding", False))
        yield "shared_embedding", value, expected


def _note_scaling(model: Model) -> None:
    for chunk in model.chunks:
        for name in ("bucket_groups", "expert_parallel_bucket_groups"):
            for group in getattr(chunk.wrapped, name, ()):
                for bucket in group.buckets:
                    _note_scaling_of(model, chunk, bucket, name == "bucket_groups")


def _note_scaling_of(model: Model, chunk: Chunk, bucket: Any, dense: bool) -> None:
    """The tokens of an expert come from all ranks, its gradient is summed over edp only: the mean
    is over dp and cp all the same."""
    size = model.topology.size
    ranks = size["dp"] * size["cp"]
    expected = 1.0 / ranks
    if chunk.config.calculate_per_token_loss:
        expected = 1.0
    elif chunk.wrapped.ddp_config.average_in_collective:
        expected = 1.0 if dense else size["edp"] / ranks
    if bucket.gradient_scaling_factor != expected:
        entry = model.entry_of(bucket.params_list[0])
        model.session.note(
            "attribute",
            fqn=entry.fqn if entry else "",
            name="gradient_scaling_factor",
            value=bucket.gradient_scaling_factor,
            expected=expected,
            of="bucket",
        )


def note_not_called(model: Model) -> None:
    """Modules that are there and never ran although their parent did."""
    for chunk in model.chunks:
        for fqn in chunk.known:
            parent = fqn.rpartition(".")[0]
            while parent and parent not in chunk.known:
                parent = parent.rpartition(".")[0]
            if not model.hooks.called(fqn) and model.hooks.called(parent):
                model.session.note("not_materialised", fqn=fqn, reason="its parent never calls it")


_FACTS = (str, int, float, bool, type(None))


def facts(model: Model) -> dict[str, Any]:
    """What meta.json keeps of the run."""
    import platform

    import megatron.core

    config = {
        name: value if isinstance(value, _FACTS) else str(value)
        for name, value in sorted(vars(model.config).items())
        if isinstance(value, (*_FACTS, torch.dtype))
    }
    return {
        "framework": "megatron-core",
        "version": getattr(megatron.core, "__version__", ""),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "sequence_parallel": model.topology.sequence_parallel,
        "virtual_stages": len(model.chunks),
        "private_names": looked_up((*MEGATRON, *TORCH)),
        "wrappers": [type(module).__name__ for module in names.wrappers(model.wrapped[0])[:-1]],
        "config": config,
    }
