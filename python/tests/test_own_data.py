"""What is said of a candidate's own data that the reference's replaced."""

import pytest
import torch

from ttrace.capture.graft import _RowsOfItems, _tells_rows_apart


def others(reference, own):
    """Of one micro-batch, the fourth."""
    rows = _RowsOfItems()
    for arg, value in reference.items():
        rows.add((0, 3), arg, value, differs=not torch.equal(value, own[arg]))
    return rows.others()


def batch(seed, rows=2):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 1000, (rows, 65), generator=generator)
    return {
        "tokens": tokens[:, :-1],
        "labels": tokens[:, 1:],
        "position_ids": torch.arange(64).expand(rows, 64),
        "loss_mask": torch.ones(rows, 64),
    }


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("wrong", ["labels", "loss_mask", "position_ids"])
def test_another_tensor_of_the_same_rows_is_named(rows, wrong):
    own = batch(0, rows)
    own[wrong] = own[wrong].roll(1, dims=1) if wrong == "labels" else own[wrong] * 2
    assert others(batch(0, rows), own) == {wrong: 3}


@pytest.mark.parametrize("rows", [1, 2])
def test_other_rows_are_none_though_positions_and_masks_are_alike(rows):
    reference, own = batch(0, rows), batch(1, rows)
    reference["loss_mask"][:, 40:] = own["loss_mask"][:, 40:] = 0  # padded alike
    assert others(reference, own) == {}


def test_equal_data_are_none():
    assert others(batch(0), batch(0)) == {}


def test_an_image_that_is_augmented_at_random_is_its_label_s_all_the_same():
    images = torch.randn(32, 3, 8, 8)
    labels = torch.randint(0, 1000, (32,), generator=torch.Generator().manual_seed(0))
    reference = {"images": images, "labels": labels}
    assert others(reference, {"images": images.flip(3), "labels": labels}) == {}
    assert others(reference, {"images": images, "labels": labels.roll(1)}) == {"labels": 3}


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(3.0),
        torch.zeros(0, 4),
        torch.zeros(4, 0),
        torch.full((4, 100), torch.nan),
        torch.zeros(2, 64, dtype=torch.bool),
        torch.arange(64.0)[None],
        torch.arange(64).expand(3, 64),
        torch.randn(2, 64).to(torch.float8_e4m3fn)[:, :1],
    ],
)
def test_what_tells_no_rows_apart(value):
    assert not _tells_rows_apart(value)


@pytest.mark.parametrize(
    "dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint8, torch.bfloat16]
)
def test_what_does_may_be_of_any_dtype(dtype):
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(2, 300, generator=generator) * 100
    assert _tells_rows_apart(value.abs().to(dtype))
