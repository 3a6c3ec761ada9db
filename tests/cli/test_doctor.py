"""`ttrace doctor` in environments that are broken, one by one."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TTRACE = Path(sys.executable).with_name("ttrace")


def doctor(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TTRACE), "doctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def checks(*arguments: object, **options: Any) -> dict[str, tuple[str, str, str]]:
    """Subject -> (health, text, next), the worst of each."""
    done = doctor("--quick", "--json", *arguments, **options)
    said = json.loads(done.stdout)
    assert done.returncode == said["exit_code"], done.stderr
    order = ["broken", "doubtful", "well"]
    healths = [one["health"] for one in said["checks"]]
    assert healths == sorted(healths, key=order.index), "the worst comes first"
    assert said["exit_code"] == (1 if "broken" in healths else 0)
    found: dict[str, tuple[str, str, str]] = {}
    for one in said["checks"]:
        found.setdefault(one["subject"], (one["health"], one["text"], one["next"]))
    return found


def environment_with(folder: Path, **files: str) -> dict[str, str]:
    """PYTHONPATH begins with a folder of these modules."""
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return {**os.environ, "PYTHONPATH": str(folder)}


# What says that it is torch: the import of the real one takes most of a look.
TORCH = """
__version__ = '2.13.0'
class version:
    cuda = None
class distributed:
    is_available = is_gloo_available = staticmethod(lambda: True)
class cuda:
    is_available = device_count = staticmethod(lambda: False)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_with(tmp_path / "modules", torch=TORCH)


def distribution(folder: Path, name: str, version: str) -> None:
    """Metadata as an installed package has it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def python_that(folder: Path, *options: str) -> Path:
    """This interpreter, with options of its own."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {" ".join(options)} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.mark.matrix
def test_an_environment_that_works_is_well_and_ranks_are_tried(tmp_path: Path) -> None:
    done = doctor("--folder", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"trial: two ranks with gloo were recorded in [\d.]+ s", done.stdout)
    assert "hook: Python loads it when it starts" in done.stdout
    assert "broken" not in done.stdout
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_without_torch_nothing_can_be_recorded(tmp_path: Path) -> None:
    # As an interpreter has it that lacks the package.
    gone = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    health, text, way_out = checks(env=environment_with(tmp_path / "m", torch=gone))["torch"]
    assert health == "broken" and "has none" in text and "pip install torch" in way_out
    done = doctor(env={**os.environ, "PYTHONPATH": str(tmp_path / "m")})
    assert done.returncode == 1
    assert "trial" not in done.stdout, "nothing is tried without torch"


def test_a_torch_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    broken = "raise OSError('libcudart.so.12: cannot open shared object file')"
    health, text, _ = checks(env=environment_with(tmp_path / "m", torch=broken))["torch"]
    assert health == "broken" and "libcudart.so.12" in text


def test_versions_that_nobody_tried_are_doubtful(tmp_path: Path) -> None:
    environment = environment_with(tmp_path / "m", torch=TORCH.replace("2.13.0", "9.9.0+cpu"))
    for name, version in (("transformers", "9.1.0"), ("accelerate", "1.15.0"), ("deepspeed", "1")):
        distribution(tmp_path / "m", name, version)
    found = checks(env=environment)
    health, text, way_out = found["torch"]
    assert health == "doubtful" and "9.9.0+cpu was not tried" in text and way_out
    health, text, _ = found["transformers"]
    assert health == "doubtful" and "9.1.0 was not tried (tried: 5.23.0)" in text
    assert found["accelerate"][0] == "well"
    health, text, _ = found["deepspeed"]
    assert health == "doubtful" and "inconclusive" in text
    assert "lightning" not in found, "what is not installed is not spoken of"


def test_a_package_of_another_version_than_its_native_module_is_broken(
    environment: dict[str, str], tmp_path: Path
) -> None:
    distribution(tmp_path / "modules", "torch-ttrace", "0.0.9")
    health, text, way_out = checks(env=environment)["ttrace"]
    assert health == "broken" and "0.0.9" in text and "--force-reinstall" in way_out


def test_the_other_package_of_that_name_is_broken(
    environment: dict[str, str], tmp_path: Path
) -> None:
    distribution(tmp_path / "modules", "ttrace", "1.0")
    health, text, _ = checks(env=environment)["ttrace"]
    assert health == "broken" and "another project's" in text


def test_a_sitecustomize_that_hides_the_hook_is_named(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    # A wrapper of a site: its own folder comes first, whatever PYTHONPATH was.
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    health, text, _ = checks("--python", python, env=environment)["hook"]
    assert health == "broken" and f"{tmp_path}/sitecustomize.py" in text


@pytest.mark.parametrize("option", ["-S", "-I -S", "-E -S"])
def test_a_python_that_does_not_load_the_hook_is_broken(option: str, tmp_path: Path) -> None:
    found = checks("--python", python_that(tmp_path, option))
    assert found["hook"][0] == "broken", found["hook"]
    assert found["hook"][1].startswith(("Python does not load it", "another sitecustomize"))


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        # A launcher that starts nothing, and one that starts one rank of the two.
        ("", "capture was loaded and torch imported, but nothing"),
        (
            "import json, os, array\n"
            "from ttrace import _native\n"
            "writer = _native.Writer(os.environ['TTRACE_OUT'], 0, 2, [('dp', 2)], [0],\n"
            "                        run_id=os.environ['TTRACE_RUN_ID'])\n"
            "one = array.array('f', [1])\n"
            "spec = writer.spec('w', 'output', '0', 'float32', [1])\n"
            "writer.append(spec, 'real', 0, 0, 'forward', -1, 0, one.buffer_info()[0], [1])\n"
            "writer.seal(0, 'real')\n"
            "writer.close(True, '')\n",
            "rank",
        ),
    ],
)
def test_a_trial_that_leaves_no_whole_trace_is_broken(ranks: str, why: str, tmp_path: Path) -> None:
    package = tmp_path / "modules" / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").write_text(
        TORCH.replace("class distributed", "class _d") + ("from torch import distributed\n")
    )
    (package / "distributed" / "__init__.py").write_text(
        "is_available = is_gloo_available = lambda: True\n"
    )
    (package / "distributed" / "run.py").write_text(ranks)
    done = doctor(env={**os.environ, "PYTHONPATH": str(tmp_path / "modules")})
    assert done.returncode == 1, done.stdout
    said = " ".join(done.stdout.split())
    assert re.search(rf"broken trial: two ranks with gloo were not recorded: .*{why}", said), said


def test_a_python_that_is_none_is_not_looked_at(tmp_path: Path) -> None:
    done = doctor("--quick", "--python", tmp_path / "nowhere")
    assert done.returncode == 2 and "nowhere" in done.stderr
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\necho 'no such module: site' >&2; exit 3\n")
    silent.chmod(0o755)
    done = doctor("--quick", "--python", silent)
    assert done.returncode == 2 and "did not answer: it exited with code 3" in done.stderr


def test_a_folder_that_takes_nothing_is_broken(environment: dict[str, str], tmp_path: Path) -> None:
    health, text, _ = checks("--folder", tmp_path / "none", env=environment)["folder"]
    assert health == "broken" and "is no folder" in text
    # Where root may not write either.
    health, text, way_out = checks("--folder", "/proc", env=environment)["folder"]
    assert health == "broken" and "cannot write in '/proc'" in text and "--folder" in way_out


def test_another_ttrace_earlier_on_the_path_is_named(
    environment: dict[str, str], tmp_path: Path
) -> None:
    other = tmp_path / "ttrace"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    path = f"{tmp_path}:{TTRACE.parent}:{os.environ['PATH']}"
    health, text, _ = checks(env={**environment, "PATH": path})["command"]
    assert health == "doubtful" and f"`ttrace` is {other}, another one" in text
    path = f"{TTRACE.parent}:{tmp_path}:{os.environ['PATH']}"
    assert checks(env={**environment, "PATH": path})["command"][0] == "well"


def limited(limit: str, environment: dict[str, str]) -> dict[str, tuple[str, str, str]]:
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit {limit}; exec {shlex.quote(str(TTRACE))} doctor --quick --json"],
        capture_output=True,
        text=True,
        env=environment,
    )
    return {one["subject"]: tuple(one.values()) for one in json.loads(done.stdout)["checks"]}


def test_limits_that_ranks_run_into_are_doubtful(environment: dict[str, str]) -> None:
    health, _, text, way_out = limited("-n 200", environment)["limits"]
    assert health == "doubtful" and "200 open files" in text and way_out.startswith("ulimit -n ")
    health, _, text, way_out = limited("-v 30000000", environment)["limits"]
    assert health == "doubtful" and "address space" in text and way_out == "ulimit -v unlimited"


def test_versions_are_those_that_the_tests_are_run_with() -> None:
    table = (ROOT / "src/run/doctor/tried_versions.cc").read_text()
    tried = {
        name: set(re.findall(r'"([^"]+)"', versions))
        for name, versions in re.findall(r'\{"([^"]+)",\s*\{([^}]*)\}', table)
    }
    for file in ("requirements-demo.txt", "requirements-loops.txt", "requirements-dev.txt"):
        for name, version in re.findall(r"^([\w-]+)==(\S+)", (ROOT / file).read_text(), re.M):
            if name in tried:
                assert version in tried[name], f"{name} is tried with {version} by {file}"
    assert len(tried["torch"]) == 1
    releases = re.search(r"^VERSIONS = \((.*)\)", (ROOT / "scripts/versions.py").read_text(), re.M)
    assert releases is not None
    assert tried["megatron-core"] == set(re.findall(r'"([^"]+)"', releases[1]))


def test_an_interpreter_that_hangs_is_ended(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 99\n")
    python.chmod(0o755)
    done = doctor("--quick", "--python", python, "--timeout", "1s")
    assert done.returncode == 2
    assert "did not answer within 1.0 s, the time that --timeout gives it" in done.stderr
    assert "try it yourself" in done.stderr
    wrong = doctor("--timeout", "soon")
    assert wrong.returncode == 2 and "--timeout: 'soon' is no" in wrong.stderr
