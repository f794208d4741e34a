import pytest
import torch

from robustkit.data import NAMES, load_dataset
from robustkit.errors import UserError


def test_the_splits_share_no_image_and_are_all_of_it():
    sizes = {split: len(load_dataset("digits", split)) for split in ("train", "val", "test")}

    assert sizes == {"train": 1099, "val": 194, "test": 504}


def test_digits_are_gray_levels_between_0_and_1():
    x, y = load_dataset("digits").batch([0, 5, 9])

    assert x.shape == (3, 1, 8, 8)
    assert x.dtype == torch.float32
    assert torch.equal((x * 16).round(), x * 16)
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    assert y.dtype == torch.int64


def test_every_class_is_in_every_split_alike():
    shares = [
        load_dataset("digits", split).labels.bincount() / len(load_dataset("digits", split))
        for split in ("train", "test")
    ]

    assert torch.allclose(*shares, atol=0.003)  # one image of 504 is 0.002


def test_a_name_may_be_in_any_case():
    assert load_dataset("Digits").name == "digits"


def test_the_fingerprint_feels_order_label_and_pixel():
    digits = load_dataset("digits")
    first = digits.fingerprint([1, 2])

    assert first == load_dataset("digits").fingerprint([1, 2])
    assert first != digits.fingerprint([2, 1])
    assert first != digits.fingerprint([1])
    assert first != load_dataset("digits", "val").fingerprint([1, 2])


def test_a_missing_split_lists_those_there_are():
    with pytest.raises(UserError, match="'dev'; there are train, val, test"):
        load_dataset("digits", "dev")


def test_a_misspelt_name_gets_the_nearest():
    assert "digits" in NAMES
    with pytest.raises(UserError, match="did you mean digits"):
        load_dataset("digit")


def test_a_size_for_digits_is_refused():
    with pytest.raises(UserError, match="leave it out"):
        load_dataset("digits", image_size=32)
