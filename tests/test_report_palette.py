"""The report's colours, as eyes without one kind of cone see them.

What is clean, close and out of bounds has to be told apart in both modes. Dichromacy is simulated
in linear RGB by the matrices of Viénot, Brettel and Mollon (1999) for protanopia and deuteranopia,
and that of Machado, Oliveira and Fernandes (2009, severity 1) for tritanopia; distances are
Euclidean in CIELAB (CIE 1976, D65).
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

STYLE = Path(__file__).resolve().parent.parent / "src" / "report" / "html" / "style.css"
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deuteranopia": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
GROUPS = {"clean": ("s3", "s4", "s5"), "close": ("s6",), "out": ("s9", "s10", "s11", "s12")}
# About 2 is what an eye notices where colours touch; cells are small and apart.
LEAST = 19

Color = tuple[float, float, float]


def palettes() -> dict[str, dict[str, Color]]:
    text = STYLE.read_text()
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)[:2]

    def read(block: str) -> dict[str, Color]:
        found = re.findall(r"--([\w-]+): #([0-9a-f]{6})\b", block)
        return {
            name: tuple(int(code[k : k + 2], 16) / 255 for k in (0, 2, 4)) for name, code in found
        }

    return {"light": read(light), "dark": {**read(light), **read(dark)}}


def lab(color: Color, eyes: tuple[Color, ...]) -> Color:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
    r, g, b = (
        min(1.0, max(0.0, sum(w * c for w, c in zip(row, linear, strict=True)))) for row in eyes
    )
    x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883
    f = [t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def distance(a: Color, b: Color, eyes: tuple[Color, ...]) -> float:
    return sum((p - q) ** 2 for p, q in zip(lab(a, eyes), lab(b, eyes), strict=True)) ** 0.5


def test_distances_are_those_of_cielab() -> None:
    white, black, red = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)
    assert lab(white, EYES["all cones"]) == pytest.approx((100, 0, 0), abs=0.01)
    assert lab(red, EYES["all cones"]) == pytest.approx((53.24, 80.09, 67.20), abs=0.02)
    assert distance(white, black, EYES["tritanopia"]) == pytest.approx(100, abs=1)
    green = (0.0, 0.65, 0.0)
    assert distance(red, green, EYES["all cones"]) > 2 * distance(red, green, EYES["deuteranopia"])


@pytest.mark.parametrize("mode", ("light", "dark"))
@pytest.mark.parametrize("eyes", EYES)
def test_clean_close_and_out_are_told_apart(mode: str, eyes: str) -> None:
    colors = palettes()[mode]
    for one, other in itertools.combinations(GROUPS, 2):
        for a, b in itertools.product(GROUPS[one], GROUPS[other]):
            apart = distance(colors[a], colors[b], EYES[eyes])
            assert apart >= LEAST, f"{a} ({one}) and {b} ({other}): {apart:.0f}"


@pytest.mark.parametrize("mode", ("light", "dark"))
@pytest.mark.parametrize("eyes", EYES)
def test_steps_of_out_follow_each_other(mode: str, eyes: str) -> None:
    colors = palettes()[mode]
    steps = [lab(colors[name], EYES[eyes])[0] for name in GROUPS["out"]]
    assert steps == sorted(steps, reverse=mode == "light"), "worse is darker, in the dark lighter"
    for a, b in itertools.pairwise(GROUPS["out"]):
        assert distance(colors[a], colors[b], EYES[eyes]) >= 8
    heat = [lab(colors[f"h{k}"], EYES[eyes])[0] for k in range(6)]
    assert heat == sorted(heat, reverse=mode == "light")


@pytest.mark.parametrize("mode", ("light", "dark"))
def test_text_can_be_read(mode: str) -> None:
    """Contrast as WCAG 2 has it: 4.5 for text, also of numbers on their cells."""
    colors = palettes()[mode]

    def luminance(name: str) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colors[name]]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    pairs = [
        ("ink", "paper"),
        ("muted", "paper"),
        ("link", "paper"),
        ("bad", "paper"),
        ("warn", "paper"),
        ("muted", "panel"),
        ("on-close", "s6"),
        ("on-out", "s9"),
        ("on-far", "s11"),
        ("on-far", "s12"),
    ]
    for text, ground in pairs:
        high, low = sorted((luminance(text), luminance(ground)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text} on {ground}"
