"""Files and lines of classes, forwards and calls are those that a reader would open."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import linecache
import sys

import pytest
from torch import nn

from ttrace.capture import source_lines

SOURCE = '''"""class Twice is named here, too."""
import functools
from torch import nn


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call


class Twice(nn.Module):
    x = 1


class Twice(nn.Module):
    def __init__(self):
        super().__init__()

    @wrapped
    def forward(self, x):
        return x


class Inherits(Twice):
    """Has no function of its own."""


class OfLinear(nn.Linear):
    pass


def other_forward(self, x):
    return x


def make():
    class Inner(nn.Module):
        def forward(self, x):
            return x
    return Inner
'''


class Session:
    """What a capture's session does with notes."""

    def __init__(self):
        self.notes = []
        self._asked = set()

    def note(self, kind, **fields):
        self.notes.append((kind, fields))

    def once(self, what):
        first = what not in self._asked
        self._asked.add(what)
        return first


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "some_model.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("some_model", path)
    found = importlib.util.module_from_spec(spec)
    sys.modules["some_model"] = found
    spec.loader.exec_module(found)
    yield found
    del sys.modules["some_model"]


def line_of(text, nth=0):
    return [n for n, line in enumerate(SOURCE.splitlines(), 1) if text in line][nth]


def test_a_class_is_where_its_statement_is(module):
    file = module.__file__
    assert source_lines.place_of_class(module.Twice) == (file, line_of("class Twice(", 1))
    assert source_lines.place_of_class(module.Inherits) == (file, line_of("class Inherits"))
    assert source_lines.place_of_class(module.make()) == (file, line_of("class Inner"))


def test_a_forward_is_the_function_that_a_decorator_was_given(module):
    place = (module.__file__, line_of("@wrapped"))
    assert source_lines.place_of_forward(module.Twice) == place
    assert source_lines.place_of_forward(module.Inherits) == place


def test_classes_of_libraries_are_found_as_python_finds_them():
    for cls in (nn.Linear, nn.LayerNorm, nn.TransformerEncoderLayer, nn.MultiheadAttention):
        file, line = source_lines.place_of_class(cls)
        assert (file, line) == (inspect.getsourcefile(cls), inspect.getsourcelines(cls)[1])


def test_one_note_for_a_class():
    session = Session()
    modules = [("a", nn.Linear(1, 1)), ("b", nn.ReLU()), ("c", nn.Linear(1, 1))]
    source_lines.note_modules(session, modules)
    (kind, fields), _ = session.notes
    assert kind == "source_of_class"
    assert (fields["class"], fields["modules"]) == ("Linear", ["a", "c"])
    assert fields["forward_file"] == fields["file"]
    assert fields["of_torch"] and "base" not in fields


def test_a_class_without_a_place_is_noted_as_such():
    session = Session()
    names = {"nn": nn, "__name__": "typed_in"}
    exec("class Made(nn.Module):\n    def forward(self, x): return x", names)
    source_lines.note_modules(session, [("", nn.Sequential()), ("0", names["Made"]())])
    assert session.notes[1] == ("source_of_class", {"class": "Made", "modules": ["0"]})


def test_a_class_that_was_made_of_another_has_the_place_of_that(module):
    session = Session()
    made = type("Made", (module.Twice,), {})
    weighted = nn.utils.parametrizations.weight_norm(module.OfLinear(1, 1))
    source_lines.note_modules(session, [("a", made()), ("b", weighted)])
    (_, of_made), (_, of_weighted) = session.notes
    assert (of_made["class"], of_made["base"]) == ("Made", "Twice")
    assert (of_made["file"], of_made["line"]) == (module.__file__, line_of("class Twice(", 1))
    assert of_made["forward_line"] == line_of("@wrapped")
    assert of_weighted["class"] == "ParametrizedOfLinear"
    assert of_weighted["base"] == "OfLinear"
    assert of_weighted["line"] == line_of("class OfLinear")


def test_what_torch_makes_a_parameter_of_has_the_place_of_its_module():
    session = Session()
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(1, 1))
    source_lines.note_modules(session, weighted.named_modules())
    assert [fields["modules"] for _, fields in session.notes] == [[""]]


def test_of_a_file_that_is_gone_the_forward_is_known(module, tmp_path):
    (tmp_path / "some_model.py").unlink()
    linecache.checkcache()
    session = Session()
    source_lines.note_modules(session, [("", module.Twice())])
    ((_, fields),) = session.notes
    assert "file" not in fields
    assert (fields["forward_file"], fields["forward_line"]) == (
        module.__file__,
        line_of("@wrapped"),
    )


def test_a_forward_that_was_put_on_one_module_is_named(module):
    session = Session()
    plain, patched, again = module.Twice(), module.Twice(), module.Twice()
    for one in (patched, again):
        one.forward = functools.partial(module.other_forward, one)
    source_lines.note_modules(session, [("a", plain), ("b", patched), ("c", again)])
    said = [(fields["modules"], fields["forward_line"]) for _, fields in session.notes]
    assert said == [(["a"], line_of("@wrapped")), (["b", "c"], line_of("def other_forward"))]


def test_a_class_that_cannot_be_read_costs_its_own_place_only():
    class Odd(nn.Module):
        pass

    Odd.__module__ = []
    session = Session()
    source_lines.note_modules(session, [("a", Odd()), ("b", nn.Linear(1, 1))])
    assert [fields["class"] for _, fields in session.notes] == [Odd.__qualname__, "Linear"]


def test_of_a_wrapper_and_what_it_wraps_the_inner_is_meant(module):
    session = Session()
    source_lines.note_modules(session, [("", nn.Sequential()), ("", module.Twice())])
    ((_, fields),) = session.notes
    assert (fields["class"], fields["modules"]) == ("Twice", [""])


def test_a_list_of_modules_has_no_forward():
    session = Session()
    source_lines.note_modules(session, [("layers", nn.ModuleList())])
    ((_, fields),) = session.notes
    assert fields["class"] == "ModuleList"
    assert "forward_file" not in fields


def test_a_path_below_the_working_directory_is_relative(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session()
    source_lines.note_modules(session, [("", module.Twice())])
    ((_, fields),) = session.notes
    assert fields["file"] == fields["forward_file"] == "some_model.py"


def test_a_caller_is_named_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session()
    for _ in range(2):
        source_lines.note_caller(session, "step")
        line = inspect.currentframe().f_lineno - 1
    ((kind, fields),) = session.notes
    assert kind == "source_of_call"
    assert fields == {"what": "step", "file": __file__, "line": line}


def test_the_function_in_a_partial_is_named():
    session = Session()
    source_lines.note_function(session, "loss", functools.partial(line_of, "x"))
    ((_, fields),) = session.notes
    assert fields["line"] == line_of.__code__.co_firstlineno


def test_a_path_is_whole_where_the_working_directory_is_gone(module, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    session = Session()
    source_lines.note_modules(session, [("", module.Twice())])
    source_lines.note_caller(session, "step")
    assert [fields["file"] for _, fields in session.notes] == [module.__file__, __file__]


def test_bytes_of_a_path_that_are_no_text_are_spelled_out(monkeypatch):
    session = Session()
    code = compile("def loss(): pass", "bad\udcff.py", "exec")
    names = {}
    exec(code, names)
    source_lines.note_function(session, "loss", names["loss"])
    ((_, fields),) = session.notes
    assert fields["file"] == "bad\\udcff.py"


def test_a_caller_of_a_module_without_a_name_is_named():
    session = Session()
    names = {"__name__": None, "session": session, "note": source_lines.note_caller}
    exec(compile("\nnote(session, 'step')", "nameless.py", "exec"), names)
    ((_, fields),) = session.notes
    assert (fields["file"], fields["line"]) == ("nameless.py", 2)


def test_what_fails_is_not_noted_and_nothing_more():
    class Strict(Session):
        def note(self, kind, **fields):
            raise ValueError("not JSON")

    source_lines.note_modules(Strict(), [("a", nn.Linear(1, 1))])
    source_lines.note_caller(Strict(), "step")
    source_lines.note_function(Strict(), "loss", line_of)
    source_lines.note_modules(Strict(), None)


LIBRARY = "def run(function):\n    return function()"


@pytest.mark.parametrize("name", ["accelerate.optimizer", "lightning.pytorch.x", "transformers"])
def test_a_loop_of_the_users_is_named_and_not_the_library_that_it_calls(name):
    session = Session()
    library, users = {"__name__": name}, {"__name__": "__main__"}
    exec(compile(LIBRARY, "library.py", "exec"), library)
    users |= {"run": library["run"], "note": functools.partial(source_lines.note_caller, session)}
    users["step"] = functools.partial(users["note"], "step")
    exec(compile("\n\nrun(step)", "train.py", "exec"), users)
    ((_, fields),) = session.notes
    assert (fields["file"], fields["line"]) == ("train.py", 3)


def test_without_a_loop_of_the_users_the_librarys_is_named():
    session = Session()
    library = {"__name__": "lightning.pytorch"}
    exec(compile(LIBRARY, "library.py", "exec"), library)
    code = "import threading\nt = threading.Thread(target=run, args=(step,))\nt.start()\nt.join()"
    users = {"run": library["run"], "__name__": "__main__"}
    users["step"] = functools.partial(source_lines.note_caller, session, "step")
    exec(code, users)
    ((_, fields),) = session.notes
    assert (fields["file"], fields["line"]) == ("library.py", 2)
