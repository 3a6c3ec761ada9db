"""Copies of a model that a loop keeps are found, and what is part of the model is not."""

import copy
import pickle
from types import SimpleNamespace

import pytest
from torch import nn

from ttrace.capture import modules_beside
from ttrace.capture.modules_beside import beside, patch_modules
from ttrace.capture.patches import Patches


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1)


class Around(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model


@pytest.fixture(autouse=True)
def patched():
    modules_beside._given.clear()
    patches = Patches()
    patch_modules(SimpleNamespace(Module=nn.Module), patches)
    yield
    patches.undo()


def found(root, inside=None):
    return beside((root if inside is None else inside).modules(), root)


def test_copies_are_found_as_wholes():
    model = Net()
    average, stored = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    teacher = Net()
    teacher.load_state_dict(model.state_dict())
    assert set(map(id, found(model))) == {id(average), id(stored), id(teacher)}


def test_a_copy_of_a_part_is_found():
    model = Net()
    momentum = copy.deepcopy(model.body)
    assert found(model) == [momentum]


def test_what_is_gone_is_not_found():
    model = Net()
    copy.deepcopy(model)
    assert found(model) == []


def test_a_copy_that_is_compared_is_not_beside():
    outer = copy.deepcopy(Around(copy.deepcopy(Net())))
    outer.model.head = copy.deepcopy(outer.model.head)
    assert found(outer.model) == [], "nor what is around it"
    assert found(outer.model, outer) == []


def test_a_model_of_other_parameters_is_not_taken_for_a_copy():
    model, other = Net(), nn.Sequential(nn.Linear(3, 3))
    kept = copy.deepcopy(other), copy.deepcopy(nn.ReLU())
    assert kept and found(model) == []


def test_restoring_a_module_does_what_it_did():
    model = Net()
    result = model.load_state_dict({}, strict=False)
    assert "head.weight" in result.missing_keys
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({})
    assert nn.Module.load_state_dict.__name__ == "load_state_dict"
