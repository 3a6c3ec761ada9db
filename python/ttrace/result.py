"""What a comparison found, as Python reads it: a typed view of `result.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERDICTS = ("within", "bitwise_equal", "diverged", "inconclusive")


@dataclass(frozen=True)
class BugClass:
    """One explanation of a culprit; letters and names are those of docs/diagnosis.md."""

    letter: str
    name: str
    evidence: str  # one sentence with numbers
    value: float | None  # its main number: a factor, a count; None: it has none


@dataclass(frozen=True)
class Culprit:
    """One place where the candidate is wrong."""

    fqn: str  # module or parameter, by the reference's names; "loss", "grad_norm"
    role: str  # what of it: "output", "grad_reduced", ... (docs/trace_format.md)
    iteration: int
    direction: str  # "forward", "backward", "update"
    stage: str  # "input", "compute", "communication", "optimizer"
    ranks: tuple[int, ...]  # of the candidate
    headroom: float  # error / bound: above 1 is out of bounds; inf, nan if so
    classes: tuple[BugClass, ...]  # the most certain first; may be empty
    source: str  # "FILE:LINE, what is there"; "" if unknown


@dataclass(frozen=True)
class Result:
    """Of one comparison. Immutable; safe to share between threads."""

    verdict: str  # one of VERDICTS
    reason: str  # one line
    exit_code: int  # as of the commands: 0 within, 1 diverged, 2 could not decide
    culprits: tuple[Culprit, ...]  # in the order of execution
    notes: tuple[str, ...]
    compared: int  # tensors
    unmatched: int  # tensors that one run alone has
    text: str  # the whole report, as the terminal shows it; if open, with what went wrong
    folder: Path | None  # where result.json and index.html lie; None: they were not kept
    details: Mapping[str, Any] = field(repr=False)  # all of result.json; {} if there is none

    @property
    def within(self) -> bool:
        """Whether candidate and reference are the same computation, within bounds or bit by bit."""
        return self.verdict in ("within", "bitwise_equal")

    @property
    def diverged(self) -> bool:
        return self.verdict == "diverged"

    @property
    def inconclusive(self) -> bool:
        """Neither: not enough could be compared. `reason` says what to change."""
        return not (self.within or self.diverged)

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def read(folder: Path, text: str) -> Result:
        """Of the folder that `diff` or `check` wrote. Raises ttrace.NotFoundError if it has none,
        ttrace.Error if it cannot be read."""
        from ttrace._native import Error, NotFoundError

        file = folder / "result.json"
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return Result._of(found, text, folder)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"{file}: there is no such result") from None
        except (ValueError, KeyError, TypeError) as error:
            raise Error(f"{file}: no result of this version: {error}") from error

    @staticmethod
    def _of(found: Mapping[str, Any], text: str, folder: Path) -> Result:
        coverage = found["coverage"]
        if found["verdict"] not in VERDICTS:
            raise ValueError(f"unknown verdict {found['verdict']!r}")
        return Result(
            verdict=found["verdict"],
            reason=found["reason"],
            exit_code=found["exit_code"],
            culprits=tuple(_culprit(one) for one in found["culprits"]),
            notes=tuple(note["text"] for note in found["notes"]),
            compared=coverage["compared"],
            unmatched=coverage["reference_only"] + coverage["candidate_only"],
            text=text,
            folder=folder,
            details=found,
        )

    @staticmethod
    def undecided(reason: str, text: str, folder: Path | None) -> Result:
        """Of a comparison that ended before anything was compared."""
        return Result("inconclusive", reason, 2, (), (), 0, 0, text, folder, {})


def _culprit(found: Mapping[str, Any]) -> Culprit:
    source = found.get("source") or {}
    return Culprit(
        fqn=found["fqn"],
        role=found["role"],
        iteration=found["iteration"],
        direction=found["direction"],
        stage=found["stage"],
        ranks=tuple(found["ranks"]),
        headroom=_number(found["headroom"]),
        classes=tuple(
            BugClass(
                letter=one["class"],
                name=one["name"],
                evidence=one["evidence"],
                value=None if one.get("value") is None else _number(one["value"]),
            )
            for one in found["classes"]
        ),
        source=source.get("text") or "",
    )


def _number(value: Any) -> float:
    """JSON has no infinity: the file has it as text."""
    return float(value)
