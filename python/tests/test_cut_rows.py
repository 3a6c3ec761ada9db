"""Forwards that send positions of rows among data-parallel ranks are told from those that gather or
reduce what is made of rows."""

import pytest
import torch

from ttrace.adapters.torch.cut_rows import WHAT, CutRows
from ttrace.capture.collective_calls import Call

ROWS, TOKENS, WIDTH = 8, 16, 4
KEYS = torch.zeros(ROWS, TOKENS, WIDTH)


class Session:
    """Keeps what is said to be unsupported."""

    def __init__(self):
        self.said = {}

    def has_seen(self, what):
        return what in self.said

    def unsupported(self, what, reason, way_out):
        assert way_out
        self.said[what] = reason


class Gather(torch.autograd.Function):
    """As torch.distributed.nn's: in its forward the collective is heard."""

    @staticmethod
    def forward(ctx, cut, x):
        hear(cut, "all_gather", x)
        return x.clone(), x.clone()

    @staticmethod
    def backward(ctx, a, b):
        return None, a + b


class Twice(torch.autograd.Function):
    """Nobody's gather."""

    @staticmethod
    def forward(ctx, x):
        return x.clone(), x.clone()

    @staticmethod
    def backward(ctx, a, b):
        return a + b


def hear(cut, kind, *tensors, members=(0, 1), dim=None):
    cut.heard(Call(kind, "", members, tensors, dim), "layers.0")


def after(forward, shape=None, ranks=(0, 1), inputs=None):
    """What is said of a forward; `shape` of the reference's input."""
    session = Session()
    cut = CutRows(session, ranks)
    inputs = torch.zeros(ROWS, TOKENS) if inputs is None else inputs
    cut.begin(ROWS, {"x": inputs}, None if shape is None else lambda name: shape)
    output = forward(cut)
    cut.end(torch.zeros(1) if output is None else output)
    return session.said


@pytest.mark.parametrize("kind", ["send", "recv", "all_to_all"])
def test_what_is_passed_from_rank_to_rank_is_parts_of_rows(kind):
    said = after(lambda cut: hear(cut, kind, KEYS))
    assert said[WHAT].startswith(f"layers.0 exchanges tensors ({kind}) in its forward")


@pytest.mark.parametrize("dim", [1, -1])
def test_a_gather_that_is_put_together_along_other_than_the_rows_is_of_parts(dim):
    keys = KEYS.clone().requires_grad_()
    said = after(lambda cut: torch.cat(Gather.apply(cut, keys), dim).sum())
    assert said[WHAT].startswith(f"layers.0 gathers tensors along dimension {dim}")
    assert WHAT in after(lambda cut: hear(cut, "all_gather", KEYS, dim=dim))


def test_a_gather_of_a_model_whose_inputs_are_parts_of_the_references_is_of_parts():
    assert WHAT in after(lambda cut: hear(cut, "all_gather", KEYS), (ROWS, 2 * TOKENS))


HONEST = {
    "embeddings": lambda cut, x: torch.cat(Gather.apply(cut, x[:, 0]), 0).sum(),
    "embeddings, from the end": lambda cut, x: torch.cat(Gather.apply(cut, x), -3).sum(),
    "other results put together": lambda cut, x: (
        torch.cat(Gather.apply(cut, x), 0).sum() + torch.cat(Twice.apply(x), 1).sum()
    ),
    "a rank's own of two gathers": lambda cut, x: torch.cat(
        [Gather.apply(cut, x)[0], Gather.apply(cut, x.sin())[0]], 1
    ).sum(),
    "images of a queue": lambda cut, x: hear(cut, "all_gather", x.detach()),
    "a functional gather of rows": lambda cut, x: hear(cut, "all_gather", x, dim=0),
    "statistics": lambda cut, x: hear(cut, "all_gather", torch.zeros(1, 2 * WIDTH + 1)),
    "a reduced normaliser": lambda cut, x: hear(cut, "all_reduce", x),
    "counts of tokens": lambda cut, x: hear(cut, "all_to_all", torch.zeros(2, 2).long()),
    "a number sent on": lambda cut, x: hear(cut, "send", torch.zeros(3)),
    "other ranks": lambda cut, x: hear(cut, "all_to_all", x, members=(1, 2)),
    "one rank": lambda cut, x: hear(cut, "all_to_all", x, members=(1,)),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_data_parallel_forwards_send_is_not_taken_for_parts(name):
    x = KEYS.clone().requires_grad_()
    assert after(lambda cut: HONEST[name](cut, x), (2 * ROWS, TOKENS)) == {}


def test_a_batch_in_another_dimension_is_not_taken_for_a_cut():
    """Inputs of [tokens, rows]: fewer columns than the reference has, and no gather of them."""
    for kind, tensor in (("all_gather", torch.zeros(ROWS // 2, WIDTH)), ("all_reduce", KEYS)):
        assert after(lambda cut: hear(cut, kind, tensor), (ROWS, 2 * TOKENS)) == {}  # noqa: B023


@pytest.mark.parametrize(
    "shape",
    [
        (),
        (2 * ROWS, TOKENS),
        (2 * ROWS, 2 * TOKENS),
        (ROWS, TOKENS),
        (ROWS, 3 * TOKENS),
        (ROWS, 2 * TOKENS, 1),
    ],
)
def test_inputs_are_parts_only_if_all_ranks_together_make_the_references_rows(shape):
    assert after(lambda cut: hear(cut, "all_gather", KEYS), shape) == {}


def test_sums_of_its_rows_are_a_cut_only_where_nothing_says_what_ranks_are():
    for wrapped in (True, False):
        session = Session()
        cut = CutRows(session, (0, 1), wrapped)
        cut.begin(ROWS, {}, None)
        hear(cut, "all_reduce", torch.zeros(2, WIDTH))  # statistics
        assert session.said == {}
        hear(cut, "all_reduce", KEYS)
        assert (WHAT in session.said) != wrapped
