#!/usr/bin/env python3
"""Which conditions of the judging half would no test miss?

    git archive HEAD | tar -x -C TREE
    scripts/remove_checks.py plant TREE
    cd TREE && cmake --preset release -DTTRACE_BUILD_TESTS=ON && cmake --build --preset release
    scripts/remove_checks.py run TREE TREE/build/release OUT [N|KIND...]

`plant` changes the copy so that TTRACE_OFF=N switches condition N off: one build serves all. An
`if` that is off is never taken. An operand of && that is off is true, one of || false (of
conditions and of what is returned). `run` runs the tests without each of them, or without those
named (KIND: if, && or ||). OUT gets a line for each: N, the first test that failed or SURVIVED,
kind, place, text. Places are lines of HEAD. What OUT holds is not run again, so a run may be
stopped at any time. TEST_TMPDIR on a file system in memory makes it twice as fast.

A survivor is dead, or a shortcut, or cannot happen through the public API, or lacks a test.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

STAGES = ["measure", "judge", "localize", "check"]
SWITCH = """#include <cstdlib>
inline bool ttrace_on(int n) {
  static const int off = [] {
    const char* text = std::getenv("TTRACE_OFF");
    return text == nullptr ? -1 : std::atoi(text);
  }();
  return n != off;
}
"""
BLANK = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
DECLARATION = re.compile(r"\s*(?:const\s+)?[\w:]+(?:<[^=]*>)?\s*[*&]*\s+[*&]*(\w+)\s*=[^=]")


def blank(text):
    """Comments and literals as spaces, so that places stay."""
    text = re.sub(r"(?<=\d)'(?=\d)", " ", text)  # 1'000 begins no character
    return BLANK.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def end_of(text, at, stop):
    """The first of `stop` at or behind `at` that is not in brackets."""
    depth = 0
    while True:
        c = text[at]
        if depth == 0 and c in stop:
            return at
        depth += (c in "([{") - (c in ")]}")
        at += 1


def operands(text, begin, end):
    """Spans of the operands and their operator, if there are more than one."""
    for operator in ("||", "&&"):
        cuts, depth = [], 0
        for at in range(begin, end):
            depth += (text[at] in "([{") - (text[at] in ")]}")
            if depth == 0 and text[at] == "?":
                return "", []
            if depth == 0 and text[at : at + 2] == operator:
                cuts.append(at)
        if cuts:
            begins = [begin] + [c + 2 for c in cuts]
            return operator, list(zip(begins, cuts + [end], strict=True))
    return "", []


class Source:
    """One file, whose conditions get numbers from `first` on."""

    def __init__(self, path, first):
        self.path = path
        self.first = first
        self.original = path.read_text()
        self.text = blank(self.original)
        self.places = []
        self.opens = {}
        self.closes = {}

    def add(self, kind, begin, end, before, after):
        number = self.first + len(self.places)
        self.opens.setdefault(begin, []).append(before.format(number))
        self.closes.setdefault(end, []).insert(0, after.format(number))
        line = self.original.count("\n", 0, begin) + 1
        place = f"src/{self.path.as_posix().rpartition('/src/')[2]}:{line}"
        self.places.append([number, kind, place, " ".join(self.original[begin:end].split())])

    def add_operands(self, begin, end):
        operator, spans = operands(self.text, begin, end)
        before = "(!ttrace_on({}) || (" if operator == "&&" else "(ttrace_on({}) && ("
        for a, b in spans:
            self.add(operator, a, b, before, "))")

    def add_if(self, begin):
        end = end_of(self.text, begin, ")")
        semicolon = end_of(self.text[:end] + ";", begin, ";")
        if semicolon < end:
            begin = semicolon + 1
        condition = self.text[begin:end]
        plumbing = re.fullmatch(r"\s*!\s*([\w.>-]+?)(?:\.|->)ok\(\)\s*", condition)
        if plumbing and re.match(r"\)\s*\{?\s*return " + plumbing[1], self.text[end:]):
            return
        declared = DECLARATION.match(condition) if semicolon == end else None
        if declared:
            self.add("if", begin, end, "", f"; ttrace_on({{}}) && {declared[1]}")
        else:
            self.add("if", begin, end, "ttrace_on({}) && (", ")")
            self.add_operands(begin, end)

    def plant(self):
        for m in re.finditer(r"\b(?:if \(|return\b)", self.text):
            if m.group() == "return":
                self.add_operands(m.end(), end_of(self.text, m.end(), ";"))
            else:
                self.add_if(m.end())
        out = [SWITCH]
        for at in range(len(self.original) + 1):
            out += self.closes.get(at, []) + self.opens.get(at, []) + [self.original[at : at + 1]]
        self.path.write_text("".join(out))


def plant(tree):
    places = []
    for stage in STAGES:
        for path in sorted((tree / "src" / stage).rglob("*.cc")):
            if not path.name.endswith("_test.cc"):
                source = Source(path, len(places))
                source.plant()
                places += source.places
    (tree / "places.json").write_text(json.dumps(places))
    print(len(places), "conditions")


def first_failure(build, stage, number):
    tests = [f"{s}_test" for s in [stage, "check", "localize", "judge", "measure"]]
    for test in dict.fromkeys(tests):  # each once, those of its own stage first
        if not (build / test).exists():
            continue
        try:
            run = subprocess.run(
                [build / test, "--gtest_fail_fast", "--gtest_brief=1", "--gtest_filter=-Damage*"],
                env={**os.environ, "TTRACE_OFF": str(number)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=120,
            )
        except subprocess.TimeoutExpired:
            return f"{test} (hangs)"
        if run.returncode != 0:
            m = re.search(r"\[  FAILED  \] ([\w./]+)", run.stdout.decode(errors="replace"))
            return m[1] if m else f"{test} (crash {run.returncode})"
    return ""


def run(tree, build, out, only):
    places = json.loads((tree / "places.json").read_text())
    done = set()
    if out.exists():
        done = {int(line.split("\t")[0]) for line in out.read_text().splitlines()}
    places = [p for p in places if not only or p[1] in only or str(p[0]) in only]
    with out.open("a") as f:
        for number, kind, place, what in places:
            if number in done:
                continue
            failure = first_failure(build, place.split("/")[1], number)
            print(number, failure or "SURVIVED", kind, place, what, sep="\t", file=f, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "plant":
        plant(pathlib.Path(sys.argv[2]))
    else:
        run(
            pathlib.Path(sys.argv[2]),
            pathlib.Path(sys.argv[3]),
            pathlib.Path(sys.argv[4]),
            sys.argv[5:],
        )
