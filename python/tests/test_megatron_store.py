"""What stages hold of a gradient that is a sum over some of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ttrace.adapters.megatron.declared import Declared
from ttrace.adapters.megatron.names import TIED_WEIGHT
from ttrace.adapters.megatron.rules import ModuleRules
from ttrace.adapters.megatron.store import Store
from ttrace.adapters.megatron.topology import Topology


def written(stage: int, tied: bool, mtp: int | None, stages: int = 3) -> dict[str, torch.Tensor]:
    """Local gradients of a stage with one other parameter, by name."""
    root = nn.Module()
    root.config = SimpleNamespace(
        hidden_size=4,
        gated_linear_unit=False,
        calculate_per_token_loss=False,
        mtp_num_layers=mtp,
    )
    root.vocab_size = 6
    root.share_embeddings_and_output_weights = tied
    size = {"pp": stages, "dp": 1, "cp": 1, "tp": 2}
    topology = Topology(size, {**dict.fromkeys(size, 0), "pp": stage}, False)
    rules = ModuleRules(topology, root.config, root)
    own = nn.Parameter(torch.zeros(2))
    own.grad = torch.ones(2)
    entry = SimpleNamespace(fqn="other.weight", original=own, rule=rules.declared(Declared()))
    chunk = SimpleNamespace(root=root, rules=rules, wrapped=root)
    model = SimpleNamespace(
        topology=topology, chunks=[chunk], parameters=lambda: iter([entry]), batch=None
    )
    return {piece.fqn: piece.tensor for piece in Store(model).local_gradients()}


@pytest.mark.parametrize(
    ("tied", "mtp", "copied"), [(True, None, True), (False, 1, True), (False, None, False)]
)
def test_stages_between_copies_of_the_embedding_write_a_zero_term(
    tied: bool, mtp: int | None, copied: bool
) -> None:
    between = written(1, tied, mtp)
    assert (TIED_WEIGHT in between) == copied
    if copied:
        assert torch.equal(between[TIED_WEIGHT], torch.zeros(3, 4))
    for stage in (0, 2):
        assert TIED_WEIGHT not in written(stage, tied, mtp)
