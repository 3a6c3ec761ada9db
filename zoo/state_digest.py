"""What a run leaves behind on a rank, as two hashes: two runs that differ in no bit print the
same. Used to prove that observing a run does not change it."""

from __future__ import annotations

import hashlib
import os
import random
import sys

import numpy
import torch


def print_line(text: str) -> None:
    """Writes one line in one system call, so that lines of several ranks never mix."""
    sys.stdout.flush()
    os.write(sys.stdout.fileno(), (text + "\n").encode())


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Of a DTensor, what this rank has."""
    return tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor.detach()


def parameter_digest(model: torch.nn.Module) -> str:
    """SHA-256 of the names and bytes of all parameters."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        value = local(parameter).cpu().contiguous()
        digest.update(value.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def random_digest(named_states: dict[str, torch.Tensor | torch.Generator]) -> str:
    """SHA-256 of the random states of torch, numpy and Python, and of further torch states."""
    digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    digest.update(repr(numpy.random.get_state(legacy=False)["state"]["pos"]).encode())
    digest.update(numpy.random.get_state(legacy=False)["state"]["key"].tobytes())
    digest.update(repr(random.getstate()).encode())
    for name, state in sorted(named_states.items()):
        digest.update(name.encode())
        if isinstance(state, torch.Generator):
            state = state.get_state()
        digest.update(state.numpy().tobytes())
    return digest.hexdigest()
