"""Runs the shell steps of a composite action of GitHub's, as its runner does: expressions in their
environment, the files that a step writes outputs and the summary to."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class Ran:
    code: int = 0
    said: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


class Action:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.action: dict[str, Any] = yaml.safe_load((folder / "action.yml").read_text())

    def run(self, cwd: Path, path: str, **given: str) -> Ran:
        """Steps that use other actions are the runner's own. A failing step ends it."""
        unknown = given.keys() - {name.replace("-", "_") for name in self.action["inputs"]}
        assert not unknown, unknown
        values = {
            f"inputs.{name}": given.get(name.replace("-", "_"), of.get("default", ""))
            for name, of in self.action["inputs"].items()
        }
        ran = Ran()
        for step in self.action["runs"]["steps"]:
            if "run" not in step or not self._wanted(step, values):
                continue
            self._run_step(step, values, cwd, path, ran)
            if ran.code != 0:
                break
        for name, of in self.action["outputs"].items():
            ran.outputs[name] = self._filled(of["value"], values)
        return ran

    def _wanted(self, step: dict[str, Any], values: dict[str, str]) -> bool:
        condition = step.get("if")
        if condition is None:
            return True
        name, empty = re.fullmatch(r"(\S+) != ''", condition)[1], ""
        return values[name] != empty

    def _filled(self, text: str, values: dict[str, str]) -> str:
        return EXPRESSION.sub(lambda found: values.get(found[1], ""), text)

    def _run_step(
        self, step: dict[str, Any], values: dict[str, str], cwd: Path, path: str, ran: Ran
    ) -> None:
        assert step["shell"] == "bash"
        files = {
            name: cwd / f".{name.lower()}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
        }
        for file in files.values():
            file.write_text("")
        filled = {name: self._filled(text, values) for name, text in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=cwd / self._filled(step.get("working-directory", "."), values),
            env={
                **os.environ,
                **{name: str(file) for name, file in files.items()},
                **filled,
                "GITHUB_ACTION_PATH": str(self.folder),
                "PATH": path,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        ran.code = done.returncode
        ran.said += done.stdout
        ran.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, value = line.split("=", 1)
            values[f"steps.{step['id']}.outputs.{name}"] = value
