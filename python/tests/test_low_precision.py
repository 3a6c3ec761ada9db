"""Modules of other libraries that quantise are named by their classes, and no others are."""

import pytest
from torch import nn

from ttrace.capture.low_precision import quantised


def made(kind, package, base=nn.Linear):
    """An instance of a class of that name, as if that package had defined it."""
    return type(kind, (base,), {"__module__": package})(2, 2)


@pytest.mark.parametrize(
    ("kind", "package", "what"),
    [
        ("Float8Linear", "torchao.float8.float8_linear", "torchao Float8Linear (layer)"),
        ("NVFP4Linear", "torchao.prototype.mx_formats.x", "torchao NVFP4Linear (layer)"),
        ("MXLinear", "torchao.prototype.mx_formats.mx_linear", "torchao MXLinear (layer)"),
        ("Linear4bit", "bitsandbytes.nn.modules", "bitsandbytes Linear4bit (layer)"),
        ("Linear8bitLt", "bitsandbytes.nn.modules", "bitsandbytes Linear8bitLt (layer)"),
        ("Float8Linear", "my_own_copy", "Float8Linear (layer)"),
    ],
)
def test_a_module_that_quantises_is_named_by_its_class(kind, package, what):
    (found,) = quantised([("plain", nn.Linear(2, 2)), ("layer", made(kind, package))])
    assert found.what == what


def test_a_class_that_is_derived_from_one_that_quantises_does_so_too():
    base = type("Float8Linear", (nn.Linear,), {"__module__": "torchao.float8"})
    (found,) = quantised([("layer", made("Mine", "script", base))])
    assert found.name == "torchao Float8Linear"


def test_a_parameter_of_a_quantising_class_is_enough():
    weight = type("MXTensor", (nn.Parameter,), {"__module__": "torchao.prototype.mx_formats"})
    layer = nn.Linear(2, 2)
    layer._parameters["weight"] = weight(layer.weight.detach())
    (found,) = quantised([("layer", layer)])
    assert found.name == "torchao MXTensor"


def test_modules_of_one_class_are_counted():
    layer = made("Float8Linear", "torchao.float8")
    (found,) = quantised([("a", layer), ("b", layer), ("c", layer)])
    assert found.what == "torchao Float8Linear (a and 2 more)"


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("VectorQuantizer", "script"),  # a codebook, which is exact
        ("Linear", "torchao.nn"),
        ("StableLinear", "bitsandbytes.nn.modules"),
        ("Linear4bit", "bitsandbytes_of_mine"),
        ("Float64Linear", "torchao.nn"),
    ],
)
def test_a_module_that_computes_as_its_dtypes_say_is_not_named(kind, package):
    assert quantised([("layer", made(kind, package))]) == []
