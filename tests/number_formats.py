"""Every pattern of every short number format, held against numpy and ml_dtypes.

The core is asked through a native filter, `tests/native/number_formats.cc`. torch's names of dtypes
are used; `ml_dtypes` calls them the same.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

SHORT_FLOATS = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
SHORT_INTEGERS = {
    "bool": np.dtype(np.uint8),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
}


class Filter:
    """The native filter, once for each instruction set of this machine."""

    def __init__(self, program: Path) -> None:
        self._program = program
        done = subprocess.run([program, "sets"], capture_output=True, text=True, check=True)
        self.instruction_sets = done.stdout.split()

    def __call__(self, what: str, *dtypes: str, given: np.ndarray | bytes) -> bytes:
        data = given if isinstance(given, bytes) else given.tobytes()
        results = {
            subprocess.run(
                [self._program, what, *dtypes],
                input=data,
                stdout=subprocess.PIPE,
                check=True,
                env={**os.environ, "TTRACE_INSTRUCTION_SET": name},
            ).stdout
            for name in self.instruction_sets
        }
        assert len(results) == 1, f"{what} {dtypes}: instruction sets differ"
        return results.pop()

    def doubles(self, what: str, *dtypes: str, given: np.ndarray | bytes) -> np.ndarray:
        return np.frombuffer(self(what, *dtypes, given=given), np.float64)


Check = Callable[[Filter], None]


def all_codes(dtype: np.dtype) -> np.ndarray:
    """Every pattern of bits once."""
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint32)
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """As numbers, the sign of zero included; any NaN is any other."""
    assert got.shape == want.shape
    both_nan = np.isnan(got) & np.isnan(want)
    equal = (got == want) & (np.signbit(got) == np.signbit(want))
    wrong = np.flatnonzero(~(both_nan | equal))
    assert wrong.size == 0, (wrong[:5], got[wrong[:5]], want[wrong[:5]])


def widened(values: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return values.astype(dtype)


def between_numbers(dtype: np.dtype) -> np.ndarray:
    """All finite numbers of a format, the middles between neighbours, and what lies right beside
    those: where rounding is decided. And what is beyond its range."""
    values = widened(all_codes(dtype))
    values = np.unique(values[np.isfinite(values)])
    beyond = values[-1] + (values[-1] - values[-2]) * np.array([0.25, 0.5, 0.75, 1, 1e3])
    beyond = beyond[beyond < np.finfo(np.float32).max]
    values = np.concatenate([-beyond[::-1], values, beyond])
    middles = (values[1:] + values[:-1]) / 2
    # In steps of fp32, from which ml_dtypes rounds once.
    narrow = middles.astype(np.float32)
    assert np.array_equal(narrow, middles)
    beside = [np.nextafter(narrow, np.float32(way)) for way in (-np.inf, np.inf)]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    return np.concatenate([values, middles, *beside, special]).astype(np.float32)


def every_pattern_is_widened(native: Filter) -> None:
    for name, dtype in (SHORT_FLOATS | SHORT_INTEGERS).items():
        codes = all_codes(dtype)
        want = widened(codes != 0 if name == "bool" else codes)
        same(native.doubles("widen", name, given=codes), want)


def numbers_are_rounded_to_the_nearest(native: Filter) -> None:
    for name, dtype in SHORT_FLOATS.items():
        values = between_numbers(dtype)
        with np.errstate(over="ignore"):
            want = widened(values.astype(dtype))
        wide = widened(values)
        got = np.frombuffer(native("narrow", name, given=wide), dtype)
        same(widened(got), want)
        same(native.doubles("round", name, given=wide), want)


def pairs_of_patterns_are_compared(native: Filter) -> None:
    """Each pattern with itself, with its neighbour and with a far one, of each pair of formats."""
    for ref_name, ref_dtype in SHORT_FLOATS.items():
        for cand_name, cand_dtype in (SHORT_FLOATS | {"float32": np.dtype(np.float32)}).items():
            ref = all_codes(ref_dtype)
            if cand_name == "float32":
                cand = widened(np.roll(ref, 7), np.float32)
            else:
                codes = all_codes(cand_dtype)
                steps = (0, 1, 21845) if ref_dtype == cand_dtype else (0,)
                count = max(len(ref), len(codes))
                ref = np.concatenate([np.resize(ref, count)] * len(steps))
                cand = np.concatenate([np.roll(np.resize(codes, count), s) for s in steps])
            compare(native, (ref_name, cand_name), ref, cand)


def compare(native: Filter, names: tuple[str, str], ref: np.ndarray, cand: np.ndarray) -> None:
    # FMA or not is the same for one element: nothing is added.
    given = ref.tobytes() + cand.tobytes()
    got = native.doubles("compare", *names, given=given).reshape(-1, 7)
    r = widened(ref)
    c = widened(cand)
    finite = np.isfinite(r) & np.isfinite(c)
    equal = (r == c) & (np.signbit(r) == np.signbit(c)) | (np.isnan(r) & np.isnan(c))
    with np.errstate(invalid="ignore"):
        err = np.where(finite, np.abs(c - r), 0)
    # fp32 rounds the difference, and its square.
    assert np.all(np.abs(got[:, 0] - err) <= err * 2.0**-24), names
    same(got[:, 1], np.where(finite, np.abs(r), 0))
    assert np.all(np.abs(got[:, 2] - err**2) <= err**2 * 2.0**-22), names
    same(got[:, 3], (~equal).astype(np.float64))
    same(got[:, 4], (~np.isfinite(r)).astype(np.float64))
    same(got[:, 5], (~np.isfinite(c)).astype(np.float64))
    same(got[:, 6], (~equal & ~finite).astype(np.float64))


CHECKS: tuple[Check, ...] = (
    every_pattern_is_widened,
    numbers_are_rounded_to_the_nearest,
    pairs_of_patterns_are_compared,
)
