"""What a rank computes, as hashes, where HONEST_HASHES is set: of the gradients that each step of
an optimizer finds, and at the end of the parameters and the states of all random generators.
`scripts/honest.py --unchanged` holds them against those of a run that is recorded."""

import hashlib
import random

import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Hashes:
    def __init__(self) -> None:
        self._gradients = hashlib.sha256()
        self._optimizers: list[torch.optim.Optimizer] = []
        random.seed(0)  # else each process starts these two elsewhere
        numpy.random.seed(0)
        register_optimizer_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
        for parameter in _parameters(optimizer):
            self._gradients.update(b"-" if parameter.grad is None else _bytes(parameter.grad))

    def line(self, rank: int) -> str:
        parameters = hashlib.sha256()
        for optimizer in self._optimizers:
            for parameter in _parameters(optimizer):
                parameters.update(_bytes(parameter))
        states = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
        states.update(repr((random.getstate(), numpy.random.get_state())).encode())
        found = (self._gradients, parameters, states)
        words = " ".join(each.hexdigest()[:16] for each in found)
        return f"hashes of rank {rank}: {words}"


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _bytes(tensor: torch.Tensor) -> bytes:
    tensor = tensor.detach()
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    return dense.contiguous().view(torch.uint8).numpy().tobytes()
