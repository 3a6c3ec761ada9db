"""Layers that a stage numbers wrongly are told, with what depends on their number."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn

from ttrace.adapters.megatron.numbering import numbering_mismatches, window_of_layer

WINDOW = (8, 0)


class FusedScaleMaskSoftmax(nn.Module):
    def __init__(self, window: tuple[int, int] | None) -> None:
        super().__init__()
        self.window_size = window


class Layer(nn.Module):
    def __init__(self, number: int, window: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.layer_number = number
        self.attention = nn.Module()
        self.attention.layer_number = number
        self.attention.softmax = FusedScaleMaskSoftmax(window)
        self.router = nn.Module()
        self.router.layer_number = None  # not told yet


def stage(*layers: Layer) -> nn.Module:
    root = nn.Module()
    root.decoder = nn.Module()
    root.decoder.layers = nn.ModuleList(layers)
    return root


def config(window: tuple[int, int] | None = None, skip: int | list[int] | None = None) -> object:
    return SimpleNamespace(window_size=window, window_attn_skip_freq=skip)


def test_right_numbers_are_not_told() -> None:
    root = stage(Layer(3), Layer(4, WINDOW))
    assert list(numbering_mismatches(root, config(WINDOW, 3), 2)) == []


def test_a_stage_that_counts_from_one_is_told_with_what_follows_from_it() -> None:
    root = stage(Layer(1, WINDOW), Layer(2, WINDOW))
    assert list(numbering_mismatches(root, config(WINDOW, 3), 2)) == [
        ("decoder.layers.2", "layer_number", 1, 3),
        ("decoder.layers.2.attention", "layer_number", 1, 3),
        ("decoder.layers.2.attention.softmax", "window_size", "(8, 0)", "None"),
        ("decoder.layers.3", "layer_number", 2, 4),
        ("decoder.layers.3.attention", "layer_number", 2, 4),
    ]


def test_attention_alone_may_be_numbered_wrongly() -> None:
    layer = Layer(3)
    layer.attention.layer_number = 1
    found = list(numbering_mismatches(stage(layer), config(), 2))
    assert found == [("decoder.layers.2.attention", "layer_number", 1, 3)]


def test_a_model_without_a_decoder_has_no_layers() -> None:
    assert list(numbering_mismatches(nn.Module(), config(), 0)) == []


@pytest.mark.parametrize(
    ("skip", "numbers"), [(None, [1, 2, 3, 4]), (3, [1, 2, 4]), ([0, 1, 1, 0], [2, 3])]
)
def test_window_of_layer(skip: int | list[int] | None, numbers: list[int]) -> None:
    with_window = [n for n in range(1, 5) if window_of_layer(config(WINDOW, skip), n) == WINDOW]
    assert with_window == numbers
    assert all(window_of_layer(config(None, skip), n) is None for n in range(1, 5))
