"""Names that libraries do not promise: those that are listed exist in the versions that are
installed, and one that does not is said by its name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import dataloader

import ttrace
from test_torch_native import entries
from test_torch_native import notes as notes_of
from ttrace.adapters.megatron import notes
from ttrace.adapters.megatron.private_names import MEGATRON
from ttrace.adapters.torch.private_names import TORCH
from ttrace.capture.private_names import PrivateName, looked_up, missing

FAKE = "a_library_of_this_test"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(FAKE)
    module.Group = type("Group", (), {"start": lambda self: None})
    monkeypatch.setitem(sys.modules, FAKE, module)
    return module


@pytest.mark.parametrize("name", (*MEGATRON, *TORCH), ids=str)
def test_a_listed_name_exists_in_what_is_installed(name: PrivateName) -> None:
    if name.module.startswith("megatron."):
        pytest.importorskip("megatron.core")
    import_module(name.module)
    assert name.is_there, f"{name}: {name.without}"


def test_no_name_is_listed_twice() -> None:
    names = [str(name) for name in (*MEGATRON, *TORCH)]
    assert len(names) == len(set(names))


def test_what_is_lost_is_said_of_a_missing_name_only(library: ModuleType) -> None:
    there = PrivateName(FAKE, "Group.start", "nothing is captured")
    lost = PrivateName(FAKE, "Group.stop", "the end is not seen")
    within = PrivateName(FAKE, "Other.start", "others are not seen")
    assert list(missing((there, lost, within))) == [
        f"this version has no {FAKE}.Group.stop: the end is not seen",
        f"this version has no {FAKE}.Other.start: others are not seen",
    ]
    assert looked_up((there, lost)) == {f"{FAKE}.Group.start": True, f"{FAKE}.Group.stop": False}


def test_an_attribute_is_looked_for_where_it_is_set(library: ModuleType) -> None:
    class Sets:
        def __init__(self) -> None:
            self._state = 0

    library.Sets = Sets
    there = PrivateName(FAKE, "Sets.__init__", "nothing", attribute="_state")
    other = PrivateName(FAKE, "Sets.__init__", "no state is read", attribute="_states")
    of_none = PrivateName(FAKE, "Group", "no state is read", attribute="_states")
    assert (there.is_there, other.is_there, of_none.is_there) == (True, False, False)
    assert looked_up((there,)) == {f"{FAKE}.Sets.__init__._state": True}
    assert list(missing((other,))) == [
        f"this version has no {FAKE}.Sets.__init__._states: no state is read"
    ]


def test_a_loop_is_captured_where_loaders_have_another_iterator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dataloader, "_Renamed", dataloader._BaseDataLoaderIter, raising=False)
    monkeypatch.delattr(dataloader, "_BaseDataLoaderIter")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ttrace.attach(model, optimizer, out=str(tmp_path))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    assert [e["complete"] for e in entries(tmp_path) if e["type"] == "end"] == [True]
    (said,) = notes_of(tmp_path, "notice")
    assert "has no torch.utils.data.dataloader._BaseDataLoaderIter" in said["text"]


def test_without_its_state_a_scaler_is_said_and_not_guessed_at(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler._states = vars(scaler).pop("_per_optimizer_states")
    ttrace.attach(model, optimizer, out=str(tmp_path))
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(2, 2)).sum()).backward()
        optimizer.step()
    (said,) = notes_of(tmp_path, "unsupported")
    assert "cannot be told" in said["reason"]


def test_an_attribute_of_instances_is_one_that_a_method_uses(library: ModuleType) -> None:
    def start(self: Any) -> None:
        self.started = True

    library.Group.start = start
    there = PrivateName(FAKE, "Group.start", "a", "started")
    lost = PrivateName(FAKE, "Group.start", "b", "stopped")
    library.Group.len = len  # no code that could be looked at
    builtin = PrivateName(FAKE, "Group.len", "c", "started")
    assert [name.is_there for name in (there, lost, builtin)] == [True, False, False]
    assert list(missing((there, lost))) == [f"this version has no {FAKE}.Group.start.stopped: b"]


def test_nothing_is_said_of_a_module_that_was_not_imported() -> None:
    name = PrivateName("never_imported_by_anybody", "start", "nothing is captured")
    assert not list(missing((name,)))
    assert looked_up((name,)) == {}


def test_a_run_is_told_which_name_is_missing(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (PrivateName(FAKE, "Group.start", "a"), PrivateName(FAKE, "Group.stop", "b"))
    monkeypatch.setattr(notes, "MEGATRON", names)
    monkeypatch.setattr(notes, "TORCH", ())
    written: list[tuple[str, dict[str, Any]]] = []
    session = SimpleNamespace(note=lambda kind, **fields: written.append((kind, fields)))
    notes._note_private_names(SimpleNamespace(session=session))
    assert written == [("notice", {"text": f"this version has no {FAKE}.Group.stop: b"})]
