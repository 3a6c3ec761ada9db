"""What a configuration asks for and this version cannot judge has a name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ttrace.adapters.megatron.topology import Topology
from ttrace.adapters.megatron.unsupported import leg_refusal, unsupported, uses_cuda_graphs

transformer = pytest.importorskip("megatron.core.transformer")


class GPTModel(nn.Module):
    pass


class FullyShardedDataParallel(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def model(
    wrapped: nn.Module | None = None,
    chunks: int = 1,
    seen: tuple[str, ...] = (),
    **options: object,
) -> SimpleNamespace:
    config = transformer.TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=2)
    for name, value in options.items():
        assert hasattr(config, name)  # as megatron-core calls it today
        setattr(config, name, value)
    root = GPTModel()
    chunk = SimpleNamespace(wrapped=wrapped or root, root=root)
    session = SimpleNamespace(has_seen=lambda what: what in seen)
    return SimpleNamespace(config=config, chunks=[chunk] * chunks, stages=chunks, session=session)


def named(found: SimpleNamespace) -> list[str]:
    return [what for what, _, _ in unsupported(found)]


def test_a_plain_dense_model_is_supported() -> None:
    assert named(model()) == []
    assert named(model(num_moe_experts=4)) == []
    assert named(model(multi_latent_attention=True)) == []
    assert leg_refusal(model(), fp32=True) is None


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"num_moe_experts": 4, "moe_token_dispatcher_type": "flex"},
            "the flex dispatcher of experts",
        ),
        (
            {"num_moe_experts": 4, "moe_shared_expert_overlap": True},
            "shared experts that overlap with the dispatcher",
        ),
        ({"fp8": "hybrid"}, "fp8"),
        ({"fp4": "e2m1"}, "fp4"),
        ({"cuda_graph_impl": "local"}, "CUDA graphs"),
        ({"enable_cuda_graph": True}, "CUDA graphs"),
        ({"heterogeneous_block_specs": True}, "heterogeneous blocks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_option_is_named(options: dict[str, object], what: str) -> None:
    assert named(model(**options)) == [what]


def test_wrappers_stages_and_other_models_are_named() -> None:
    assert named(model(chunks=2)) == []
    instances = nn.Identity()
    instances.ddp_config = SimpleNamespace(num_distributed_optimizer_instances=2)
    assert "several instances of the distributed optimizer" in named(model(instances))
    assert named(model(FullyShardedDataParallel(GPTModel()))) == ["FSDP"]
    other = model()
    other.chunks[0].root = nn.Linear(1, 1)
    assert named(other) == ["model class Linear"]


def test_what_predicts_further_tokens_may_be_on_the_last_stage_without_learned_positions() -> None:
    found = model(mtp_num_layers=1)
    root = found.chunks[0].root
    assert named(found) == []  # a stage before the last
    root.embedding = SimpleNamespace(add_position_embedding=False)
    root.mtp_process = root.post_process = True
    root.pre_process = False
    assert named(found) == []
    root.embedding.add_position_embedding = True
    learned = "multi-token prediction with learned positions over pipeline stages"
    assert named(found) == [learned]
    root.pre_process = True  # the only stage: one table
    assert named(found) == []
    root.post_process = False
    assert named(found) == ["multi-token prediction before the last stage"]


def test_no_leg_runs_whose_numbers_would_be_the_runs() -> None:
    assert leg_refusal(model(FullyShardedDataParallel(GPTModel())), fp32=False)
    assert leg_refusal(model(cuda_graph_impl="local"), fp32=False)
    assert leg_refusal(model(fp8="hybrid"), fp32=False) is None
    assert leg_refusal(model(fp8="hybrid"), fp32=True)
    # What the configuration does not say, but a hook has seen.
    assert leg_refusal(model(seen=("CUDA graphs",)), fp32=False)
    assert leg_refusal(model(seen=("fp8",)), fp32=False) is None
    assert leg_refusal(model(seen=("fp8",)), fp32=True)


def test_modules_that_megatron_captures_in_graphs_get_no_hooks() -> None:
    from ttrace.adapters.megatron.model import Chunk

    root = GPTModel()
    root.linear = nn.Linear(2, 2)
    root.config = SimpleNamespace(
        cuda_graph_impl="local", calculate_per_token_loss=False, gated_linear_unit=False
    )
    root.post_process = root.parallel_output = True
    wrapped = FullyShardedDataParallel(root)
    wrapped.__class__ = type("DistributedDataParallel", (nn.Module,), {})
    size = {"pp": 1, "dp": 1, "cp": 1, "tp": 1}
    chunk = Chunk(wrapped, 0, Topology(size, dict.fromkeys(size, 0), False), None)
    assert chunk.known == {}
    assert chunk.entry is wrapped
    assert [(e.fqn, e.early) for e in chunk.parameters] == [
        ("linear.weight", True),
        ("linear.bias", True),
    ]
    assert uses_cuda_graphs(chunk.config)
    assert torch.is_tensor(chunk.parameters[0].current)
