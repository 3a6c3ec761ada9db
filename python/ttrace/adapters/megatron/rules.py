"""Module class -> where its tensors lie, for Megatron-core's GPT (local specification).

Activations are [S, B, H]. Over cp the sequence is cut in zigzag; with sequence parallelism the
residual stream is, inside the local sequence of cp, cut again over tp. Everything here follows from
class, configuration and topology. What a class does not tell is not guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ttrace.adapters.megatron.declared import Declared
from ttrace.adapters.megatron.experts import ExpertRules
from ttrace.adapters.megatron.fused_norms import FusedNorms, is_of_norm
from ttrace.adapters.megatron.names import (
    HEAD_WEIGHT,
    TIED_WEIGHT,
    has_copies_of_embedding,
    is_tied,
)
from ttrace.adapters.megatron.structure import (
    COLUMN,
    DUPLICATED,
    FURTHER_TOKEN,
    LATENT_ATTENTION,
    LINEAR_ARGUMENTS,
    NORM,
    ROW,
    Structure,
    is_expert,
)
from ttrace.adapters.megatron.topology import Topology
from ttrace.capture.placed import (
    ROUTING_MAP,
    Batch,
    ModuleRule,
    ParameterRule,
    RuleOrChoice,
    Scale,
    TensorRule,
)

# Hand their input on, or only hold children.
_TRANSPARENT = ("ModuleList", "SequentialMLP", "IdentityOp", "IdentityFuncOp", "Float16Module")
_NORM_ARGUMENT = "input"
_FUSED_IN_ATTENTION = ("scale_mask_softmax", "attention_dropout")


def is_transparent(module: nn.Module) -> bool:
    """Whether there is nothing to record: the output, if any, is the input itself."""
    kind = type(module).__name__
    return kind in _TRANSPARENT or (kind == "Dropout" and module.p == 0)


class ModuleRules:
    """The table for one model chunk."""

    def __init__(self, topology: Topology, config: Any, root: nn.Module) -> None:
        self._topology = topology
        self._config = config
        self._root = root
        self._structure = Structure(root, topology.size["tp"])
        self.experts = ExpertRules(topology, config)
        self.fused_norms = FusedNorms()
        self._batch: Batch | None = None  # of the current call of the schedule
        place = topology.placements
        sequence = {"cp": "ZigzagShard(0)"}
        split = {**sequence, "tp": "Shard(0)"} if topology.sequence_parallel else sequence
        # Named by what the dimensions are: sequence, batch, hidden; the residual stream is "own".
        self._full = TensorRule(place(**sequence), batch_dim=1)
        self._own = TensorRule(place(**split), batch_dim=1)
        self._columns = TensorRule(place(**sequence, tp="Shard(2)"), batch_dim=1)
        self._heads = self._columns  # [S, B, heads, head size]
        self._batch_first = TensorRule(place(cp="ZigzagShard(1)"), batch_dim=0)
        self._angles = TensorRule(place(**sequence))

    def kind(self, module: nn.Module, name: str) -> str | None:
        """What the module is; to be asked of parents before their children."""
        kind = self._structure.kind(module, name)
        if kind == "TransformerLayer":
            self.fused_norms.see_layer(module, name)
        return kind

    def module(self, module: nn.Module, name: str) -> ModuleRule | None:
        """None: nothing is known of this class."""
        kind = self._structure.kind(module, name)
        if is_expert(name):
            return self.experts.module(kind, name)
        if module is self._root:
            return self._model() if kind == "GPTModel" else None
        if kind == NORM:
            return self._norm(self._heads if self._structure.is_of_heads(name) else self._own)
        if kind == "Dropout":
            return self._dropout(name)
        if kind == "DotProductAttention":
            return self._core_attention(module)
        build = {
            "LanguageModelEmbedding": self._embedding,
            "VocabParallelEmbedding": self._word_embeddings,
            "Embedding": self._other_embeddings,
            "RotaryEmbedding": self._rotary,
            "TransformerBlock": self._block,
            "TransformerLayer": self._layer,
            "MultiTokenPredictionBlock": self._further_tokens,
            FURTHER_TOKEN: self._further_token,
            "SelfAttention": self._residual_branch,
            LATENT_ATTENTION: self._residual_branch,
            "MLP": self._residual_branch,
            "MoELayer": self._moe_layer,
            "TopKRouter": self._router,
            COLUMN: self._column_parallel,
            ROW: self._row_parallel,
            DUPLICATED: self._duplicated,
            "FusedScaleMaskSoftmax": self._softmax,
        }.get(kind or "")
        return None if build is None else build(module, name)

    def _model(self) -> ModuleRule:
        tokens = ("input_ids", "position_ids", "labels", "loss_mask")
        return ModuleRule(
            dict.fromkeys(tokens, self._batch_first),
            {"0": self._losses_or_logits} if self._root.post_process else {},
        )

    def _losses_or_logits(self, output: torch.Tensor) -> TensorRule | None:
        if output.dim() == 2:  # with labels: the loss of each token
            return self._batch_first
        words = {"cp": "ZigzagShard(1)"}
        if self._root.parallel_output:
            words["tp"] = "Shard(2)"
        return TensorRule(self._topology.placements(**words), batch_dim=0)

    def _embedding(self, module: nn.Module, name: str) -> ModuleRule:
        ids = dict.fromkeys(("input_ids", "position_ids"), self._batch_first)
        # Without position embeddings nothing is computed here.
        return ModuleRule(ids, {"0": self._own}, computes=bool(module.add_position_embedding))

    def _word_embeddings(self, module: nn.Module, name: str) -> ModuleRule:
        rows = self._topology.over("tp")  # each rank has some rows of the table: a sum
        if self._topology.sequence_parallel and not self._positions_are_added():
            output = TensorRule(self._own.placements, 1, reduced_over=rows)
        else:
            output = TensorRule(self._full.placements, 1, order=(1, 0, 2), reduced_over=rows)
        return ModuleRule({"input_": self._batch_first}, {"0": output})

    def _positions_are_added(self) -> bool:
        embedding = getattr(self._root, "embedding", None)
        return bool(
            getattr(embedding, "add_position_embedding", False)
            or getattr(embedding, "num_tokentypes", 0)
        )

    def _other_embeddings(self, module: nn.Module, name: str) -> ModuleRule:
        output = TensorRule(self._full.placements, 1, order=(1, 0, 2))
        return ModuleRule({"input": self._batch_first}, {"0": output})

    def _rotary(self, module: nn.Module, name: str) -> ModuleRule:
        return ModuleRule({}, {"0": self._angles})

    def _block(self, module: nn.Module, name: str) -> ModuleRule:
        inputs: dict[str, RuleOrChoice] = {"rotary_pos_emb": self._angles}
        outputs: dict[str, RuleOrChoice] = {}
        # Later stages are given their input behind the argument's back, and only the last one's
        # output is the block's.
        if module.pre_process:
            inputs["hidden_states"] = self._own
        if module.post_process:
            outputs["0"] = self._own
        return ModuleRule(inputs, outputs, computes=False)

    def _layer(self, module: nn.Module, name: str) -> ModuleRule:
        return ModuleRule(
            {"hidden_states": self._own, "rotary_pos_emb": self._angles},
            {"0": self._own},
            arguments=(
                "hidden_states",
                "attention_mask",
                "context",
                "context_mask",
                "rotary_pos_emb",
            ),
        )

    def _further_tokens(self, module: nn.Module, name: str) -> ModuleRule:
        # Its output is the parts of all layers one after another, which is no part of anything.
        return ModuleRule(self._of_further_token(), {}, computes=False)

    def _further_token(self, module: nn.Module, name: str) -> ModuleRule:
        tokens = {"1": self._batch_first, "2": self._batch_first}  # and their positions
        return ModuleRule(self._of_further_token(), {"0": self._own, **tokens}, computes=False)

    def _of_further_token(self) -> dict[str, RuleOrChoice]:
        ids = dict.fromkeys(("input_ids", "position_ids"), self._batch_first)
        return {**ids, "hidden_states": self._own, "rotary_pos_emb": self._angles}

    def _residual_branch(self, module: nn.Module, name: str) -> ModuleRule:
        # Where its first linear normalises, what the block is given is what that one is given.
        inputs = {} if self.fused_norms.feeds(name) else {"hidden_states": self._own}
        return ModuleRule(inputs, {"0": self._own}, computes=False)

    def _moe_layer(self, module: nn.Module, name: str) -> ModuleRule:
        # Beside what its experts compute: the sum over those of a token, and over ranks.
        return ModuleRule({"hidden_states": self._own}, {"0": self._own})

    def _router(self, module: nn.Module, name: str) -> ModuleRule:
        """Probabilities, and which expert gets which token: [tokens, experts], the tokens with the
        rows of the micro-batch running fastest."""

        def by_token(value: torch.Tensor) -> TensorRule | None:
            rule = self.of_tokens(value)
            return None if rule is None else replace(rule, decides=True)

        return ModuleRule({"input": self._own}, {"0": by_token, ROUTING_MAP: by_token})

    def of_tokens(self, value: torch.Tensor) -> TensorRule | None:
        """Of a router's [tokens, experts]."""
        if self._batch is None or value.dim() != 2:
            return None
        rows, topology = self._batch.micro_batch_size, self._topology
        if value.shape[0] % rows:
            return None
        cuts = topology.size["cp"] * (topology.size["tp"] if topology.sequence_parallel else 1)
        self.experts.sequence = value.shape[0] // rows * cuts
        return TensorRule(self._own.placements, batch_dim=1, rows=rows)

    def begin_call(self, batch: Batch) -> None:
        """Of the schedule."""
        self._batch = self.experts.batch = batch

    def _norm(self, rule: TensorRule) -> ModuleRule:
        # Whatever the class calls its first argument: one tensor has one name.
        return ModuleRule({_NORM_ARGUMENT: rule}, {"0": rule}, arguments=(_NORM_ARGUMENT,))

    def _dropout(self, name: str) -> ModuleRule | None:
        if name.endswith("embedding_dropout"):
            rule = self._own
        elif name.endswith("core_attention.attention_dropout"):
            rule = self._probabilities()
        else:
            return None
        return ModuleRule({"input": rule}, {"0": rule}, computes=False)

    def _probabilities(self) -> TensorRule:
        # [B, heads, S, S]. Under cp no module holds them whole or in a known part.
        return TensorRule(self._topology.placements(tp="Shard(1)"), batch_dim=0)

    def _softmax(self, module: nn.Module, name: str) -> ModuleRule | None:
        if self._topology.size["cp"] > 1:
            return None
        rule = self._probabilities()
        return ModuleRule({"input": rule}, {"0": rule})

    def _core_attention(self, module: nn.Module) -> ModuleRule:
        # Keys and values of all ranks of cp are used by each, so their gradients are sums.
        shared = TensorRule(self._heads.placements, 1, grad_reduced_over=self._topology.over("cp"))
        fused = tuple(child for child in _FUSED_IN_ATTENTION if not hasattr(module, child))
        return ModuleRule(
            {"query": self._heads, "key": shared, "value": shared},
            {"0": self._columns},
            not_materialised=fused,
        )

    def _column_parallel(self, module: nn.Module, name: str) -> ModuleRule:
        tp = self._topology.over("tp")
        given = self._own if self._topology.sequence_parallel else self._full
        norm = self.fused_norms.within(name)
        known_as = None if norm is None else (norm.fqn, _NORM_ARGUMENT)
        rule = TensorRule(given.placements, 1, grad_reduced_over=tp, known_as=known_as)
        inputs = {LINEAR_ARGUMENTS[0]: rule}
        cut = self._columns
        if self._is_gated(name):
            words = {"cp": "ZigzagShard(0)", "tp": "StridedShard(2,2)"}
            cut = TensorRule(self._topology.placements(**words), 1)

        def gathered_or_cut(value: torch.Tensor) -> TensorRule:
            """A call may have the output gathered, or not, whatever the module says."""
            held = getattr(module, "output_size_per_partition", None)
            gathered = value.shape[-1] != held if held else getattr(module, "gather_output", False)
            return self._full if gathered else cut

        return ModuleRule(inputs, {"0": gathered_or_cut}, arguments=LINEAR_ARGUMENTS)

    def _row_parallel(self, module: nn.Module, name: str) -> ModuleRule:
        made = self._own if self._topology.sequence_parallel else self._full
        output = TensorRule(made.placements, 1, reduced_over=self._topology.over("tp"))
        inputs = {LINEAR_ARGUMENTS[0]: self._columns}
        return ModuleRule(inputs, {"0": output}, arguments=LINEAR_ARGUMENTS)

    def _duplicated(self, module: nn.Module, name: str) -> ModuleRule:
        inputs = {LINEAR_ARGUMENTS[0]: self._own}
        return ModuleRule(inputs, {"0": self._own}, arguments=LINEAR_ARGUMENTS)

    def _is_gated(self, name: str) -> bool:
        """Gate and up projection in one weight: each rank holds a part of both."""
        return bool(self._config.gated_linear_unit) and name.endswith("linear_fc1")

    # Parameters

    def parameter(self, owner: nn.Module, owner_name: str, name: str) -> ParameterRule | None:
        """`name` is the parameter's own, "weight" or "bias". None: the class is unknown."""
        kind = self._structure.kind(owner, owner_name)
        if is_expert(owner_name):
            return self._of_expert(kind, owner_name, name)
        words: dict[str, str] = {}
        summed = ["dp", "cp"]
        if kind == "VocabParallelEmbedding":
            words["tp"] = "Shard(0)"
        elif kind == COLUMN and is_of_norm(name):
            if self._topology.sequence_parallel:
                summed.append("tp")
        elif kind in (COLUMN, ROW, DUPLICATED) and name not in ("weight", "bias"):
            return None  # a subclass's own
        elif kind == COLUMN:
            words["tp"] = "StridedShard(0,2)" if self._is_gated(owner_name) else "Shard(0)"
        elif kind == ROW:
            if name == "weight":
                words["tp"] = "Shard(1)"
            elif self._topology.sequence_parallel:
                summed.append("tp")  # the bias is added to a part of the sequence
        elif kind == NORM:
            # Norms of heads are applied to the rank's own heads.
            if self._topology.sequence_parallel or self._structure.is_of_heads(owner_name):
                summed.append("tp")
        elif kind in ("TopKRouter", DUPLICATED):
            if self._topology.sequence_parallel:
                summed.append("tp")
        elif kind != "Embedding":
            return None
        if self._is_in_several_stages(f"{owner_name}.{name}"):
            summed.append("pp")
        return self._parameter(words, summed)

    def _of_expert(self, kind: str | None, owner_name: str, name: str) -> ParameterRule | None:
        """Whole on its rank but for the cut over etp; the tokens of edp are others."""
        if kind not in (COLUMN, ROW) or name not in ("weight", "bias"):
            return None
        words: dict[str, str] = {}
        if kind == COLUMN:
            words["etp"] = "StridedShard(0,2)" if self._is_gated(owner_name) else "Shard(0)"
        elif name == "weight":
            words["etp"] = "Shard(1)"
        return self._parameter(words, ("edp",), owners=("edp",))

    def declared(self, found: Declared) -> ParameterRule:
        """Of a parameter whose class is not known."""
        return self._parameter(found.words, found.summed, found.averaged)

    def tied_weight(self) -> ParameterRule:
        """That of the embedding where other stages have a copy of it."""
        return self._parameter({"tp": "Shard(0)"}, ["dp", "cp", "pp"])

    def _parameter(
        self,
        words: dict[str, str],
        summed: Sequence[str],
        averaged: Sequence[str] = (),
        owners: tuple[str, ...] = ("dp", "cp"),
    ) -> ParameterRule:
        """`owners`: the ranks that share the work of a distributed optimizer."""
        place = self._topology.placements
        local = {**words, **self._topology.terms(*summed)}
        local.update(dict.fromkeys(averaged, "Partial(avg)"))
        return ParameterRule(
            placements=place(**words),
            local_placements=place(**local),
            local_scale=self.gradient_scale(),
            reduced_over=self._topology.over(*summed, *averaged),
            owned_placements=place(**words, **dict.fromkeys(owners, "RaggedShard")),
        )

    def _is_in_several_stages(self, name: str) -> bool:
        if name == TIED_WEIGHT:
            return has_copies_of_embedding(self._root)
        return name == HEAD_WEIGHT and is_tied(self._root)

    def gradient_scale(self) -> Scale:
        """From a gradient before reduction to that of the loss of the whole batch.

        Each rank's loss is a mean over its own micro-batches and its own part of the sequence, and
        reduction averages over dp and cp. With per-token loss it is a sum, divided at the end.
        """
        if self._config.calculate_per_token_loss:
            return (1, 1)
        return (1, self._topology.size["dp"] * self._topology.size["cp"])
