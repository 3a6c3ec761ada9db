"""A pull request is gated by a golden reference that lies in the repository: the action of GitHub's
and the job of GitLab's, on a repository of its own, with the wheel that users install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from build_commands import ROOT
from gate.composite import Action, Ran

sys.path.insert(0, str(ROOT / "scripts"))
from wheels.trial import borrow, environment

GATE = ROOT / "tests" / "gate"
PAGE = ROOT / "docs" / "ci.md"
# torchrun, which the environment of the test has borrowed without its command.
CANDIDATE = "python -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
# Which no loss shows under Adam: gradients are halved on two ranks.
BROKEN = ("loss.backward()", "(loss / world).backward()")


def schema(name: str, file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{name}", file],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_are_what_the_services_read(tmp_path: Path) -> None:
    schema("github-actions", ROOT / "integrations" / "github" / "action.yml")
    schema("gitlab-ci", ROOT / "integrations" / "gitlab" / "ttrace.yml")


def test_the_workflows_of_the_page_are_what_the_services_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert {name for name, _ in blocks} == {".github/workflows/gate.yml", ".gitlab-ci.yml"}
    action = yaml.safe_load((ROOT / "integrations" / "github" / "action.yml").read_text())
    for name, text in blocks:
        file = tmp_path / Path(name).name
        file.write_text(text)
        schema("gitlab-ci" if "gitlab" in name else "github-workflows", file)
        for job in yaml.safe_load(text).get("jobs", {}).values():
            for step in job["steps"]:
                if "/integrations/github@" in step.get("uses", ""):
                    assert step["with"].keys() <= action["inputs"].keys()


class Repository:
    """What a team has: a script, and what a runner gives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python = environment(Path(sys.executable), folder / ".venv")
        self.path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run([python, "-m", "ensurepip"], check=True, capture_output=True)
        (self.wheel,) = (ROOT / "build" / "wheels").glob("*.whl")
        self.run(f"python -m pip install --quiet --no-deps --no-index '{self.wheel}'")
        borrow(python, Path(sysconfig.get_path("purelib")))
        shutil.copy(GATE / "train.py", folder)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": self.path},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def gate(self, **inputs: str) -> Ran:
        action = Action(ROOT / "integrations" / "github")
        return action.run(self.folder, self.path, **{"candidate": CANDIDATE, **inputs})

    def edit(self, before: str, after: str) -> None:
        script = self.folder / "train.py"
        text = script.read_text()
        assert before in text
        script.write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    made = Repository(tmp_path_factory.mktemp("repository"))
    made.run("ttrace baseline -o golden --iterations 0:1 -- python train.py")
    return made


@pytest.mark.matrix
def test_a_pull_request_is_gated_and_a_golden_accepted(repository: Repository) -> None:
    golden = sum(file.stat().st_size for file in (repository.folder / "golden").rglob("*"))
    assert golden < 1_000_000
    options = "--iterations 0:1"
    same = repository.gate(golden="golden", options=options, package=str(repository.wheel))
    assert same.code == 0, same.said
    assert same.outputs["verdict"] == "within"

    repository.edit(*BROKEN)
    broken = repository.gate(golden="golden", options=options)
    assert broken.code == 1, broken.said
    assert broken.outputs["verdict"] == "diverged"
    assert "loss normalisation" in broken.summary and "iteration 0" in broken.summary
    report = Path(broken.outputs["report"])
    assert (report / "index.html").is_file() and (report / "ttrace.sarif").is_file()
    failed = ET.parse(report / "junit.xml").getroot().findall(".//failure")
    assert failed

    # A change that is meant: a golden is accepted by the command that made it.
    repository.edit(*reversed(BROKEN))
    repository.edit("nn.GELU()", "nn.SiLU()")
    assert repository.gate(golden="golden", options=options).code == 1
    repository.run("ttrace baseline -o golden --force --iterations 0:1 -- python train.py")
    accepted = repository.gate(golden="golden", options=options)
    assert accepted.code == 0, accepted.said


@pytest.mark.matrix
def test_a_script_that_breaks_down_is_no_pass(repository: Repository) -> None:
    broken = repository.gate(golden="golden", candidate="false")
    assert broken.code == 2, broken.said
    assert "nothing was compared" in broken.summary
    assert broken.outputs["verdict"] == ""


def test_inputs_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    action = Action(ROOT / "integrations" / "github")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for inputs in ({}, {"golden": "a", "reference": "b"}):
        ran = action.run(tmp_path, path, candidate="true", **inputs)
        assert ran.code == 2
        assert "give one of the inputs" in ran.said
    ran = action.run(tmp_path, path, candidate="true", golden="nowhere")
    assert ran.code == 2
    assert "ttrace baseline -o 'nowhere'" in ran.said
    ran = action.run(tmp_path, "/usr/bin:/bin", candidate="true", golden="nowhere")
    assert ran.code == 2
    assert "ttrace is not installed" in ran.said


@pytest.mark.matrix
def test_the_job_of_gitlabs(repository: Repository) -> None:
    """Its script, line by line, in one shell, as its runner does."""
    job = yaml.safe_load((ROOT / "integrations" / "gitlab" / "ttrace.yml").read_text())[".ttrace"]
    given = {"TTRACE_CANDIDATE": CANDIDATE, "TTRACE_GOLDEN": "golden",
             "TTRACE_OPTIONS": "--iterations 0:1"}  # fmt: skip
    variables = {**job["variables"], **given}
    install, compare = job["script"]
    assert "pip install" in install
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", compare],
        cwd=repository.folder,
        env={**os.environ, "PATH": repository.path, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (repository.folder / job["artifacts"]["reports"]["junit"]).is_file()
