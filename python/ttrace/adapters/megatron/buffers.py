"""Buffers, as the first captured forward finds them.

Nothing says where a buffer lies. Where no dimension of the mesh cuts tensors inside a module, or
the reference's buffer has the same shape, it is whole; otherwise it is not recorded.
"""

from __future__ import annotations

import torch

from ttrace.adapters.megatron.declared import is_distributed_tensor
from ttrace.adapters.megatron.model import Chunk, Model
from ttrace.capture.graft import Graft

# After each step a router raises it for experts that got few tokens, and lowers it for others.
# Where round-off turned a choice of an earlier step, it honestly differs.
_EXPERT_BIAS = ".router.expert_bias"


def record_buffers(model: Model, graft: Graft | None) -> None:
    for chunk in model.chunks:
        for fqn, buffer in _buffers(chunk):
            reason = _unknown_place(model, fqn, buffer, graft)
            if reason is not None:
                model.session.note("not_recorded", fqn=fqn, role="buffer", arg="", reason=reason)
                continue
            if graft is not None:
                trained = fqn.endswith(_EXPERT_BIAS)
                graft.buffer(fqn, buffer, model.session.iteration, is_trained=trained)
            model.session.record(
                fqn, "buffer", "", buffer, iteration=model.session.iteration, pass_="forward"
            )


def _buffers(chunk: Chunk) -> list[tuple[str, torch.Tensor]]:
    return [
        (chunk.numbering.module(name), buffer)
        for module_name, module in chunk.root.named_modules()
        for own, buffer in module._buffers.items()
        for name in [f"{module_name}.{own}" if module_name else own]
        if buffer is not None
    ]


def _unknown_place(model: Model, fqn: str, buffer: torch.Tensor, graft: Graft | None) -> str | None:
    if is_distributed_tensor(buffer):
        return "a DTensor"
    size = model.topology.size
    if size["tp"] == size["cp"] == 1:
        return None
    whole = graft.shape_of(fqn, "buffer") if graft is not None else None
    if whole is not None and list(whole) == list(buffer.shape):
        return None
    return "whether tensor or context parallelism cuts it is not known"
