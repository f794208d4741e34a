import pytest
import torch
from sklearn.datasets import load_digits as bundled
from sklearn.model_selection import train_test_split

from robustkit.data import load_dataset
from robustkit.data.digits import _values
from robustkit.errors import UserError


def test_the_splits_have_every_class_alike_and_fixed_sizes():
    splits = [load_dataset("digits", split) for split in ("train", "val", "test")]
    shares = [data.labels.bincount() / len(data) for data in splits]

    assert [len(data) for data in splits] == [1099, 194, 504]
    assert torch.allclose(shares[0], shares[2], atol=0.003)  # one image of 504 is 0.002


def test_digits_are_gray_levels_between_0_and_1():
    x, y = load_dataset("Digits").batch([0, 5, 9])

    assert x.shape == (3, 1, 8, 8)
    assert x.dtype == torch.float32
    assert torch.equal((x * 16).round(), x * 16)
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    assert y.dtype == torch.int64


def test_digits_and_their_splits_are_those_of_scikit_learn(monkeypatch):
    pixels, y = bundled(return_X_y=True)
    rest, test = train_test_split(range(len(y)), test_size=504, stratify=y, random_state=0)
    train, val = train_test_split(rest, test_size=194, stratify=y[rest], random_state=0)
    from_file = _values()
    monkeypatch.setattr("robustkit.data.digits.find_spec", lambda name: None)  # the data file is elsewhere

    assert (_values() == from_file).all()
    for split, rows in {"train": train, "val": val, "test": test}.items():
        data = load_dataset("digits", split)
        x, labels = data.batch(range(len(data)))
        assert torch.equal(x.flatten(1) * 16, torch.from_numpy(pixels[rows]).float())
        assert torch.equal(labels, torch.from_numpy(y[rows]))


def test_the_fingerprint_changes_with_order_labels_and_pixels():
    digits = load_dataset("digits")
    first = digits.fingerprint([1, 2])

    assert first == load_dataset("digits").fingerprint([1, 2])
    assert first not in (
        digits.fingerprint([2, 1]), digits.fingerprint([1]), load_dataset("digits", "val").fingerprint([1, 2]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("digits", {"split": "dev"}, "'dev'; there are train, val, test"),
        ("digit", {}, "did you mean digits"),
        ("digits", {"image_size": 32}, "leave it out"),
    ],
)
def test_what_digits_do_not_have_is_refused_with_the_fix(name, options, sentence):
    with pytest.raises(UserError, match=sentence):
        load_dataset(name, **options)
