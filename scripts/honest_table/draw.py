"""Programs drawn from a seed: a loop, and how its batch is dealt out, padded and averaged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .kinds import BY_NAME, EVERYWHERE, FAULTS, KINDS, Kind

ROOT = Path(__file__).resolve().parents[2]
DRAWS = ROOT / "zoo/honest/draws.json"
HALVES = ("A", "B")
READ_FROM_THE_LEFT = ("tagger", "speech", "translation")


@dataclass(frozen=True)
class Draw:
    half: str
    number: int
    kind: str
    deal: str
    pad: str
    scale: str
    ranks: int
    # Micro-batches of each rank, in the candidate and in the reference of one rank.
    accumulate: int
    reference_accumulate: int
    uneven: bool
    fault: str

    @property
    def name(self) -> str:
        return f"{self.half}{self.number}"

    def script(self) -> Path:
        return ROOT / f"zoo/honest/{self.kind}.py"

    def reference(self) -> list[str]:
        return [str(self.script()), *self._options(self.reference_accumulate)]

    def candidate(self, with_fault: bool = False) -> list[str]:
        words = [str(self.script()), *self._options(self.accumulate)]
        return [*words, "--fault", self.fault] if with_fault else words

    def on_each_rank(self) -> list[str]:
        """With one micro-batch a rank, however many there are."""
        return [str(self.script()), *self._options(1)]

    def options(self) -> str:
        """As a row of the table says them."""
        words = [f"{self.ranks} ranks", self.deal, self.scale]
        words += [self.pad] if BY_NAME[self.kind].pads else []
        if (self.accumulate, self.reference_accumulate) != (1, 1):
            words.append(f"{self.reference_accumulate} and {self.accumulate} micro-batches")
        return ", ".join(words + ["uneven"] * self.uneven)

    def _options(self, accumulate: int) -> list[str]:
        words = ["--deal", self.deal, "--pad", self.pad, "--scale", self.scale]
        words += ["--accumulate", str(accumulate)]
        return words + ["--uneven"] * self.uneven


def read() -> list[Draw]:
    return [Draw(**line) for line in json.loads(DRAWS.read_text())]


def write(draws: list[Draw]) -> None:
    """One draw a line: a change of one is a change of one line."""
    in_order = sorted(draws, key=lambda draw: (draw.half, draw.number))
    lines = ",\n".join(json.dumps(asdict(draw)) for draw in in_order)
    DRAWS.write_text(f"[\n{lines}\n]\n")


def draws(half: str, seed: int | str) -> Iterator[Draw]:
    """Without an end. Every loop comes once before one comes again; libraries' own loops, whose
    import takes longer than their steps, come once."""
    source = random.Random(f"{seed} {half}")
    kinds = KINDS
    while True:
        for kind in source.sample(kinds, len(kinds)):
            yield _draw(half, 0, kind, source)
        kinds = tuple(kind for kind in kinds if not kind.is_closed)


def _draw(half: str, number: int, kind: Kind, source: random.Random) -> Draw:
    pads = ("none", "longest", "longest-left", "fixed", "fixed-left")
    pad = source.choice(pads) if kind.pads else "none"
    if kind.name in READ_FROM_THE_LEFT:
        pad = pad.removesuffix("-left")
    if kind.is_closed and pad != "none":
        pad = "longest"
    uneven = not kind.even and source.random() < 0.2
    may_average = not uneven and (kind.counts_rows or pad == "none")
    scale = source.choice([s for s in kind.scales if s != "mean" or may_average])
    ranks = source.choice((2, 2, 2, 4))
    # Eight rows at most: a rank of four has two, and each micro-batch at least one.
    single = kind.sees_batch or uneven
    accumulate = 1 if single else source.choice((1, 1, 2))
    # What a loop does with one rank: the whole batch at once, or as many rows at a time.
    reference = 1 if single else source.choice((1, accumulate * ranks))
    deal = source.choice(kind.deals)
    if deal == "blocks" and accumulate == 1:
        deal = "contiguous"
    return Draw(half, number, kind.name, deal, pad, scale, ranks, accumulate, reference, uneven, "")


def spread(draws: list[Draw], count: int, is_fault: Callable[[Draw], bool]) -> list[Draw]:
    """The same with `count` faults among them, each kind of fault as often as draws allow.
    `is_fault`: whether a draw's fault changes what it computes."""
    placed: dict[int, Draw] = {}
    tried: set[tuple[int, str]] = set()
    while len(placed) < count:
        before = len(placed)
        for fault in FAULTS:
            for i, draw in enumerate(draws):
                if len(placed) >= count or i in placed or (i, fault) in tried:
                    continue
                if fault not in possible_faults(draw):
                    continue
                tried.add((i, fault))
                with_fault = replace(draw, fault=fault)
                if is_fault(with_fault):
                    placed[i] = with_fault
                    break
        if len(placed) == before:
            break
    return [placed.get(i, replace(draw, fault="")) for i, draw in enumerate(draws)]


def possible_faults(draw: Draw) -> list[str]:
    """Which faults a program can have. Whether one changes what it computes is not said."""
    kind = BY_NAME[draw.kind]
    faults = [*EVERYWHERE * (not kind.is_closed), *kind.faults]
    if draw.pad == "none":
        faults = [f for f in faults if f not in ("padding", "lengths")]
    if not kind.is_closed and (draw.scale != "mean" or draw.accumulate > 1):
        faults.append("factor")
    if 8 // (draw.ranks * draw.accumulate) < 2:  # one row has no other to be mixed with
        faults = [f for f in faults if f not in ("labels", "pairs")]
    return faults
