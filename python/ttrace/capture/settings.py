"""What the launcher asks of this process, read from TTRACE_* once.

Nothing else in the package reads these variables.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_LEG = re.compile(r"(?P<fp32>fp32\.)?(?P<isolated>isolated\.)?noise\.(?P<number>[1-9][0-9]*)")
_PLAIN_LEGS = ("real", "replay", "fp32", "isolated", "fp32.isolated")
_SELECT_KEYS = ("fqn", "role", "rank", "micro_batch")


@dataclass(frozen=True)
class LegName:
    """What the name of a leg says. `noise` is the noise's number, or 0."""

    text: str
    fp32: bool = False
    isolated: bool = False
    noise: int = 0

    @staticmethod
    def parse(text: str) -> LegName:
        """Raises ValueError for anything that is no leg."""
        if text in _PLAIN_LEGS:
            words = text.split(".")
            return LegName(text, "fp32" in words, "isolated" in words)
        match = _LEG.fullmatch(text)
        if match is None:
            raise ValueError(f"unknown leg {text!r}")
        return LegName(text, bool(match["fp32"]), bool(match["isolated"]), int(match["number"]))

    @property
    def source(self) -> str:
        """The leg whose values an isolated leg is given."""
        return "fp32" if self.fp32 else "real"


def parse_legs(text: str) -> tuple[str, ...]:
    """From "replay,noise:2" to replay, noise.1, noise.2. "real" is implied and left out."""
    names: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        family, colon, count = word.partition(":")
        if colon:
            if not count.isdecimal():
                raise ValueError(f"leg {word!r}: {count!r} is no number")
            names += [f"{family}.{k}" for k in range(1, int(count) + 1)]
        elif family != "real":
            names.append(family)
    for name in names:
        LegName.parse(name)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Selection:
    """Which records are kept: every key that is given must match one of its patterns."""

    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Selection:
        """From "fqn=decoder.*;role=output": patterns of one key are alternatives."""
        patterns: dict[str, tuple[str, ...]] = {}
        for part in filter(None, (part.strip() for part in text.split(";"))):
            key, equals, pattern = part.partition("=")
            if not equals or key not in _SELECT_KEYS:
                raise ValueError(f"selection {part!r} is not one of {', '.join(_SELECT_KEYS)}=...")
            patterns[key] = (*patterns.get(key, ()), pattern)
        return Selection(patterns)

    def keeps(self, **values: object) -> bool:
        return all(
            any(fnmatch.fnmatchcase(str(values[key]), pattern) for pattern in patterns)
            for key, patterns in self.patterns.items()
        )


def _mode(word: str) -> str:
    if word not in ("full", "sketch", "bitwise"):
        raise ValueError(f"the mode {word!r} is none of full, sketch, bitwise")
    return word


def _iterations(words: str) -> range:
    first, _, end = words.partition(":")
    if not (first or "0").isdecimal() or not end.isdecimal() or int(first or 0) >= int(end):
        raise ValueError(f"iterations {words!r} are none: write FIRST:END, such as 0:2")
    return range(int(first or 0), int(end))


@dataclass(frozen=True)
class Settings:
    """The contract between the launcher and capture."""

    out: str
    run_id: str = ""
    iterations: range = range(2)
    legs: tuple[str, ...] = ()
    leg: str = "real"
    graft: str | None = None
    graft_what: frozenset[str] = frozenset()
    seed: int = 0
    leg_timeout: float | None = None  # seconds that a rerun may take; None: by the real call's
    selection: Selection = field(default_factory=Selection)
    dropout_off: bool = False
    mode: str = "full"  # "sketch", "bitwise": summaries instead of values
    keep_values: bool = False  # also of reruns that only measure something
    writer_thread: bool = True  # False: files are written by the thread that trains
    launch_per_leg: bool = False  # no leg is run in this process beside its own
    cuda_driver: str = "libcuda.so.1"  # another library: tests have a stand-in

    @staticmethod
    def from_words(out: str, *, iterations: str, mode: str, select: str) -> Settings:
        """Of what a caller asks for. Raises ValueError for words that mean nothing."""
        return Settings(
            out=out,
            iterations=_iterations(iterations),
            selection=Selection.parse(select),
            mode=_mode(mode),
        )

    @property
    def run(self) -> str:
        """What the run is called among its ranks: no other one that they take part in is."""
        return self.run_id or self.out

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Settings | None:
        """None if no trace is asked for. Raises ValueError for words that mean nothing."""
        get = environment.get
        out = get("TTRACE_OUT")
        if not out:
            return None
        iterations = _iterations(get("TTRACE_ITERATIONS", "0:2"))
        graft = get("TTRACE_GRAFT") or None
        what = get("TTRACE_GRAFT_WHAT", "weights,data") if graft else ""
        graft_what = frozenset(word for word in what.split(",") if word and word != "none")
        if graft_what - {"weights", "data"}:
            raise ValueError(f"TTRACE_GRAFT_WHAT {what!r} is not of weights, data")
        # Where numbers are given away anyway, masks that cannot agree are no use.
        dropout = get("TTRACE_DROPOUT") or ("off" if graft else "keep")
        if dropout not in ("off", "keep"):
            raise ValueError(f"TTRACE_DROPOUT {dropout!r} is neither off nor keep")
        leg = get("TTRACE_LEG") or "real"
        LegName.parse(leg)
        return Settings(
            out=out,
            run_id=get("TTRACE_RUN_ID", ""),
            iterations=iterations,
            legs=parse_legs(get("TTRACE_LEGS", "")),
            leg=leg,
            graft=graft,
            graft_what=graft_what,
            seed=int(get("TTRACE_SEED") or 0),
            leg_timeout=float(get("TTRACE_LEG_TIMEOUT") or 0) or None,
            selection=Selection.parse(get("TTRACE_SELECT", "")),
            dropout_off=dropout == "off",
            mode=_mode(get("TTRACE_MODE") or "full"),
            keep_values=get("TTRACE_KEEP_VALUES") == "1",
            writer_thread=get("TTRACE_WRITER_THREAD") != "0",
            launch_per_leg=get("TTRACE_LAUNCH_PER_LEG") == "1",
            cuda_driver=get("TTRACE_CUDA_DRIVER") or Settings.cuda_driver,
        )
