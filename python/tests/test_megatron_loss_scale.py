"""Gradients of fp16 training carry the loss scale, and their records say so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ttrace.adapters.megatron.loss_scale import divided, loss_scale

CPU = torch.device("cpu")


def test_the_scale_is_what_the_schedule_multiplies_by() -> None:
    assert loss_scale(SimpleNamespace(), CPU) == 1
    assert loss_scale(SimpleNamespace(grad_scale_func=None), CPU) == 1
    assert loss_scale(SimpleNamespace(grad_scale_func=lambda loss: 512 * loss), CPU) == 512


def test_a_record_is_divided_by_it() -> None:
    assert divided((1, 2), 1.0) == (1, 2)
    assert divided((1, 2), 2.0**32) == (1, 2**33)
    assert divided((1, 2), 0.25) == (2, 1)


@pytest.mark.parametrize("factor", [0.0, 2.0**70])
def test_what_a_trace_cannot_hold_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        divided((1, 1), factor)
