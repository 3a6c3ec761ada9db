"""Which reductions are said to begin before the last micro-batch of their chunk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ttrace.adapters.megatron.early_reductions import EarlyReductions
from ttrace.capture.collectives import LONGEST_NAMES


class _Session:
    def __init__(self) -> None:
        self.iteration, self.leg = 3, "real"
        self.notes: list[tuple[str, dict[str, Any]]] = []

    def guarded(self, function: Any) -> Any:
        return function

    def note(self, kind: str, /, **values: Any) -> None:
        self.notes.append((kind, values))


class _Rank:
    """A rank of data-parallel coordinate 1 of 2, and chunks of one parameter each."""

    def __init__(self, *names: str) -> None:
        self.session = _Session()
        self.early = EarlyReductions(self.session)  # type: ignore[arg-type]
        self.weights = [torch.nn.Parameter(torch.ones(2)) for _ in names]
        self.chunks = [
            SimpleNamespace(forwards=0, parameters=[SimpleNamespace(original=w, fqn=name)])
            for w, name in zip(self.weights, names, strict=True)
        ]

    def micro_batch(self, forward: int) -> int:
        return 2 * forward + 1

    def forward(self, chunk: int) -> torch.Tensor:
        output = self.weights[chunk] * 2
        self.chunks[chunk].forwards += 1
        self.early.forward_over(self.chunks[chunk], (output, None, torch.zeros(1)))
        return output

    def reduce(self, *chunks: int) -> None:
        self.early.reducing(self, [self.weights[c] for c in chunks])  # type: ignore[arg-type]

    def notes(self) -> list[dict[str, Any]]:
        self.early.write(self)  # type: ignore[arg-type]
        assert all(kind == "reduced_early" for kind, _ in self.session.notes)
        return [values for _, values in self.session.notes]


def test_a_reduction_before_the_last_backward_is_noted() -> None:
    rank = _Rank("a")
    outputs = [rank.forward(0) for _ in range(3)]
    outputs[0].sum().backward()
    rank.reduce(0)
    for output in outputs[1:]:
        output.sum().backward()
    rank.reduce(0)
    assert rank.notes() == [
        {
            "iteration": 3,
            "parameters": ["a"],
            "micro_batch": 0,
            "micro_batches": 3,
            "late": [3, 5],
        }
    ]
    assert len(rank.notes()) == 1, "said once"


def test_a_reduction_before_any_backward_is_noted() -> None:
    rank = _Rank("a")
    output = rank.forward(0)
    rank.reduce(0)
    output.sum().backward()
    assert [note["micro_batch"] for note in rank.notes()] == [-1]


def test_a_reduction_within_the_last_backward_is_right() -> None:
    rank = _Rank("a")
    rank.weights[0].register_post_accumulate_grad_hook(
        lambda _: rank.reduce(0) if rank.chunks[0].forwards == 2 else None
    )
    for _ in range(2):
        rank.forward(0).sum().backward()
    rank.reduce(0)
    assert rank.notes() == []


def test_each_chunk_counts_its_own_backwards() -> None:
    rank = _Rank("a", "b")
    for chunk in (0, 0):
        rank.forward(chunk).sum().backward()
    rank.reduce(0)  # while the other chunk has yet to begin
    first = rank.forward(1)
    first.sum().backward()
    rank.reduce(1)
    rank.forward(1).sum().backward()
    assert [(note["parameters"], note["micro_batch"]) for note in rank.notes()] == [(["b"], 0)]


def test_of_reruns_nothing_is_said() -> None:
    rank = _Rank("a")
    rank.session.leg = "noise.1"
    rank.forward(0).sum().backward()
    rank.reduce(0)
    rank.forward(0).sum().backward()
    rank.session.leg = "real"
    assert rank.notes() == []


def test_a_new_iteration_knows_nothing_of_the_last() -> None:
    rank = _Rank("a")
    rank.forward(0).sum().backward()
    rank.reduce(0)
    rank.early = EarlyReductions(rank.session)  # type: ignore[arg-type]
    rank.forward(0).sum().backward()
    assert rank.notes() == []


def test_too_many_names_are_left_out() -> None:
    rank = _Rank("a" * (LONGEST_NAMES + 1))
    output = rank.forward(0)
    rank.reduce(0)
    output.sum().backward()
    assert [note["parameters"] for note in rank.notes()] == [[]]
