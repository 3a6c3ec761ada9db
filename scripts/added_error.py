#!/usr/bin/env python3
"""Would it be better to judge what a module adds than what it receives?

    scripts/added_error.py matrix/*/result.json

Reads results of checks and applies a second rule to every module's outputs and input gradients,
beside the two that the product has:

  plain   error / (2 x noise of the whole run): dataflow takes the first that is out
  alone   the same in the isolated leg: nothing is received
  added   error / (2 x sqrt((gain x error received)^2 + own^2)), gain and own noise of the module
          solved from the noise legs: N^2 = gain^2 x received^2 + own^2 holds end to end, where
          noise comes in through the inputs, and one module deep, where it is one rounding

A rule is better if it calls fewer tensors of clean runs and, of a faulty one, fewer beside the
faulty module. Prints a table; docs/localization.md quotes it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

ROUNDOFF = {"real": {"bf16": 2.0**-8, "fp32": 2.0**-24}, "fp32": {"bf16": 2.0**-24}}
# rms of noise that is uniform in (-u, u), as a share of u.
UNIFORM = 1 / math.sqrt(3)


def leg_of(tensor: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((leg for leg in tensor["legs"] if leg["leg"] == name), None)


def number(value: Any) -> float:
    return float(value) if value is not None else math.nan


class Rules:
    """Headrooms of one leg of one result."""

    def __init__(self, result: dict[str, Any], leg: str, roundoff: float) -> None:
        self.leg, self.roundoff = leg, roundoff
        self.isolated = "fp32.isolated" if leg == "fp32" else "isolated"
        self.calls: dict[tuple, dict[str, list]] = defaultdict(lambda: defaultdict(list))
        for tensor in result["tensors"]:
            key = (tensor["fqn"], tensor["iteration"], tensor["call"])
            if tensor["pass"] != "recompute":
                self.calls[key][tensor["role"]].append(tensor)

    def judged(self) -> list[tuple[str, float, float, float]]:
        """(fqn, plain, alone, added) of each tensor for which all three exist."""
        found = []
        for (fqn, *_), roles in self.calls.items():
            for made, received in (
                ("output", roles["input"]),
                ("grad_input", roles["grad_output"] + roles["input"]),
            ):
                for tensor in roles[made]:
                    row = self._judge(tensor, received)
                    if row:
                        found.append((fqn, *row))
        return found

    def _judge(self, tensor: dict, received: list[dict]) -> tuple[float, float, float] | None:
        whole, alone = leg_of(tensor, self.leg), leg_of(tensor, self.isolated)
        inputs = [leg for leg in (leg_of(t, self.leg) for t in received) if leg]
        if whole is None or alone is None or not inputs or not number(whole["bound"]) > 0:
            return None
        noise, own_noise = number(whole["noise"]), number(alone["noise"])
        error_in = max(number(leg["err"]) for leg in inputs)
        noise_in = max(number(leg["noise"]) for leg in inputs)
        one = UNIFORM * self.roundoff
        if not (noise > 0 and own_noise > 0 and noise_in > 2 * one):
            return None
        gain2 = max(0.0, (noise**2 - own_noise**2) / (noise_in**2 - one**2))
        own = math.sqrt(max(own_noise**2 - gain2 * one**2, (self.roundoff / 4) ** 2))
        # Growth of sums in fp32, as the product's own bound has it.
        growth = max(1.0, number(alone["bound"]) / (2 * own_noise))
        scale = math.sqrt(gain2 * error_in**2 + (growth * own) ** 2)
        added = number(whole["err"]) / (2 * scale)
        plain = number(whole["err"]) / number(whole["bound"])
        return plain, number(alone["err"]) / number(alone["bound"]), added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    options = parser.parse_args()
    names = ("plain", "alone", "added")
    print("| run | leg | tensors | out: plain | out: alone | out: added | worst of each |")
    print("|---|---|---|---|---|---|---|")
    clean_worst, clean_out, clean_tensors = [0.0] * 3, [0] * 3, 0
    for path in sorted(options.results):
        result = json.loads(path.read_text())
        legs = {leg for tensor in result["tensors"] for leg in (x["leg"] for x in tensor["legs"])}
        low = "fp32" in legs
        for leg in ("real", "fp32") if low else ("real",):
            roundoff = ROUNDOFF[leg]["bf16" if low else "fp32"]
            rows = Rules(result, leg, roundoff).judged()
            out = [sum(row[i + 1] > 1 for row in rows) for i in range(3)]
            worst = [max((row[i + 1] for row in rows), default=0.0) for i in range(3)]
            if not result["culprits"]:
                clean_tensors += len(rows)
                clean_out = [a + b for a, b in zip(clean_out, out, strict=True)]
                clean_worst = [max(a, b) for a, b in zip(clean_worst, worst, strict=True)]
                continue
            shown = ", ".join(f"{value:.2g}" for value in worst)
            counts = " | ".join(map(str, out))
            print(f"| {path.parent.name} | {leg} | {len(rows)} | {counts} | {shown} |")
    summary = ", ".join(
        f"{name} {count} out, worst {value:.2f}"
        for name, count, value in zip(names, clean_out, clean_worst, strict=True)
    )
    print(f"\nClean runs, {clean_tensors} tensors: {summary}.")


if __name__ == "__main__":
    main()
