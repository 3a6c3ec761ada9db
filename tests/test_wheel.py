"""The wheel that setup_python.sh builds, as a user gets it: in a fresh environment, on a system on
which none of the libraries are installed that it was built with."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from build_commands import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from wheels import contents
from wheels.contents import faults
from wheels.repair import repair
from wheels.trial import BareSystem, borrow, environment, install

RANK = ROOT / "tests" / "cli" / "tiny_rank.py"
TORCH = Path(sysconfig.get_path("purelib"))


@pytest.fixture(scope="module")
def wheel() -> Path:
    found = sorted((ROOT / "build" / "wheels").glob("*.whl"))
    assert len(found) == 1, f"scripts/setup_python.sh makes one; there: {found}"
    return found[0]


@pytest.fixture(scope="module")
def bare() -> BareSystem:
    system = BareSystem()
    if system.refusal:
        pytest.skip(f"the wheel was not tried without the system's libraries: {system.refusal}")
    return system


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a fresh environment with the wheel, and torch to train with."""
    made = environment(Path(sys.executable), tmp_path_factory.mktemp("wheel") / "venv")
    install(wheel, made)
    borrow(made, TORCH)
    return made


def test_the_wheel_may_be_passed_on(wheel: Path) -> None:
    assert faults(wheel, ROOT) == []


@pytest.mark.matrix
def test_it_is_the_same_file_when_made_again(wheel: Path, tmp_path: Path) -> None:
    (unrepaired,) = (ROOT / "build" / "dist").glob("*.whl")
    assert repair(unrepaired, tmp_path).read_bytes() == wheel.read_bytes()


def test_what_may_not_be_passed_on_is_told(wheel: Path, tmp_path: Path) -> None:
    """As the build makes it: no licences, libraries that a system may lack, no tag."""
    (unrepaired,) = (ROOT / "build" / "dist").glob("*.whl")
    said = "\n".join(faults(unrepaired, ROOT))
    for fault in ("its tag is linux_", "needs libtbb.so.12", "licenses/libtbb.txt is missing"):
        assert fault in said
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            if not name.endswith("LICENSE") and "/_native." not in name:
                tail = b"# 1\n" if name == "ttrace/_cli.py" else b""
                target.writestr(name, source.read(name) + tail)
        target.writestr("ttrace/late.py", "")
    said = "\n".join(faults(changed, ROOT))
    assert "ttrace/_cli.py: another digest or size than RECORD has" in said
    assert "ttrace/late.py: not in RECORD" in said
    assert "LICENSE: in RECORD alone" in said
    assert "no ttrace/_native" in said
    with zipfile.ZipFile(changed, "a") as target:
        target.writestr("other-1.0.dist-info/METADATA", "")
    assert "has 2 .dist-info folders" in faults(changed, ROOT)


def test_what_systems_lack_is_told(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the wheel that is good, by limits that it does not keep."""
    monkeypatch.setattr(contents, "MEGABYTES", 1)
    monkeypatch.setattr(contents, "NEWEST_GLIBC", (2, 33))
    monkeypatch.setattr(contents, "NEWEST", {"GLIBC": (2, 33), "GLIBCXX": (3, 4, 11)})
    # Checks that fail name their files from the project's root, "src/": as a root it is found.
    said = "\n".join(faults(wheel, Path("src")))
    assert "MB; at most 1 are wanted" in said
    assert "its tag is manylinux_2_34_" in said
    assert "dlopen@GLIBC_2.34" in said
    assert "@GLIBCXX_3.4.29" in said
    assert "holds paths of the machine that built it (src)" in said


def test_a_bare_system_lacks_what_the_wheel_brings(bare: BareSystem, tmp_path: Path) -> None:
    """Else the tests below would show nothing: what is not repaired does not even load."""
    (unrepaired,) = (ROOT / "build" / "dist").glob("*.whl")
    with zipfile.ZipFile(unrepaired) as files:
        files.extractall(tmp_path)
    done = bare.run(sys.executable, "-m", "ttrace._cli", "version", cwd=tmp_path)
    assert done.returncode != 0
    assert re.search(r"lib(tbb|hwy|simdjson|fmt)\.so\S*: file too short", done.stderr)


def test_it_says_what_it_was_built_with(bare: BareSystem, python: Path) -> None:
    done = bare.run(python.with_name("ttrace"), "version")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ttrace", "compiler", "libraries", "Python"]
    for name in ("hwy", "simdjson", "nlohmann_json", "CLI11", "fmt", "TBB", "xxHash", "toml++"):
        assert f"{name} " in lines[2]
    major, minor, micro = sys.version_info[:3]
    abi = f"ABI of CPython {major}.{minor}, running in {major}.{minor}.{micro}"
    assert lines[3].split(maxsplit=1)[1] == abi


def test_two_traces_are_recorded_and_checked(
    bare: BareSystem, python: Path, tmp_path: Path
) -> None:
    ttrace = python.with_name("ttrace")
    rank = [python, RANK]
    for name, options in (("reference", ["--as-reference"]), ("same", []), ("other", [])):
        scale = ["--scale", "1.5"] if name == "other" else []
        done = bare.run(ttrace, "record", "-o", tmp_path / name, *options, "--", *rank, *scale)
        assert done.returncode == 0, done.stderr
    for name, code in (("same", 0), ("other", 1)):
        done = bare.run(ttrace, "check", tmp_path / "reference", tmp_path / name)
        assert done.returncode == code, done.stdout + done.stderr


def test_missing_libraries_are_named_with_what_installs_them(tmp_path: Path) -> None:
    """All at once, to whoever compiles because no wheel fits."""
    hidden = ["-DCMAKE_DISABLE_FIND_PACKAGE_simdjson=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_TBB=ON",
              "-DCMAKE_IGNORE_PATH=/usr/include"]  # fmt: skip
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path, *hidden], capture_output=True, text=True
    )
    assert done.returncode != 0
    for command in (
        "conda install -c conda-forge simdjson tbb-devel xxhash tomlplusplus",
        "apt-get install libsimdjson-dev libtbb-dev libxxhash-dev libtomlplusplus-dev",
        "dnf install simdjson-devel tbb-devel xxhash-devel tomlplusplus-devel",
    ):
        assert f"{command}\n" in done.stderr


@pytest.mark.matrix
def test_a_plain_script_is_judged(bare: BareSystem, python: Path, tmp_path: Path) -> None:
    """With the learning rate of another run, which is what the report has to name."""
    script = shlex.join([str(python), str(ROOT / "zoo" / "ddp_toy.py")])
    runs = {"--reference": script, "--candidate": f"{script} --lr 0.002"}
    words = [word for option in runs.items() for word in option]
    done = bare.run(python.with_name("ttrace"), "diff", "-o", tmp_path / "report", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lr" in done.stdout
    where = subprocess.run(
        [python, "-c", "import ttrace; print(ttrace.__file__)"], capture_output=True, text=True
    )
    assert where.stdout.startswith(str(python.parent.parent)), "not the wheel's own files"
