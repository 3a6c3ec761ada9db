import pytest

from ttrace.capture.settings import Selection, Settings, parse_legs


def test_without_an_output_folder_capture_is_inert():
    assert Settings.from_environment({}) is None
    assert Settings.from_environment({"TTRACE_LEGS": "replay"}) is None


def test_defaults():
    settings = Settings.from_environment({"TTRACE_OUT": "/x"})
    assert settings == Settings(out="/x")
    assert list(settings.iterations) == [0, 1]


def test_legs_are_expanded_in_order_and_real_is_implied():
    names = ("replay", "noise.1", "noise.2", "fp32", "fp32.noise.1")
    assert parse_legs("real, replay,noise:2,fp32,fp32.noise:1") == names
    names = ("isolated", "isolated.noise.1", "fp32.isolated", "fp32.isolated.noise.1")
    assert parse_legs("isolated,isolated.noise:1,fp32.isolated,fp32.isolated.noise:1") == names
    assert parse_legs("") == ()


@pytest.mark.parametrize(
    "text", ["noise", "noise:x", "fp64", "replay:2", "noise.0", "isolated:2", "isolated.fp32"]
)
def test_unknown_legs_are_refused(text):
    with pytest.raises(ValueError):
        parse_legs(text)


def test_grafting_is_both_unless_said_otherwise():
    base = {"TTRACE_OUT": "/x", "TTRACE_GRAFT": "/ref"}
    assert Settings.from_environment(base).graft_what == {"weights", "data"}
    for what, expected in (("data", {"data"}), ("none", set())):
        settings = Settings.from_environment({**base, "TTRACE_GRAFT_WHAT": what})
        assert settings.graft_what == expected
    with pytest.raises(ValueError):
        Settings.from_environment({**base, "TTRACE_GRAFT_WHAT": "wieghts"})


def test_an_empty_range_of_iterations_is_refused():
    with pytest.raises(ValueError):
        Settings.from_environment({"TTRACE_OUT": "/x", "TTRACE_ITERATIONS": "2:2"})


def test_selection_needs_every_key_and_any_pattern():
    selection = Selection.parse("fqn=decoder.*;fqn=loss;role=output")
    values = dict(rank=0, micro_batch=1)
    assert selection.keeps(fqn="decoder.layers.0", role="output", **values)
    assert selection.keeps(fqn="loss", role="output", **values)
    assert not selection.keeps(fqn="decoder.layers.0", role="input", **values)
    assert not selection.keeps(fqn="embedding", role="output", **values)
    assert Selection.parse("").keeps(fqn="x", role="y", **values)
    with pytest.raises(ValueError):
        Selection.parse("layer=3")


def test_how_long_a_leg_may_take_is_the_real_call_s_unless_said_otherwise():
    assert Settings.from_environment({"TTRACE_OUT": "/t"}).leg_timeout is None
    given = Settings.from_environment({"TTRACE_OUT": "/t", "TTRACE_LEG_TIMEOUT": "12.5"})
    assert given.leg_timeout == 12.5
