import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from robustkit.data import from_tensors, load_dataset, other_split
from robustkit.errors import UserError

X = np.linspace(0, 1, 4 * 3 * 5 * 5, dtype=np.float32).reshape(4, 3, 5, 5)
Y = np.array([0, 1, 2, 1])
SPLITS = {"x_train": X[:3], "y_train": Y[:3], "x_test": X[3:], "y_test": Y[3:]}


def saved(folder: Path, suffix: str = ".npz", **arrays: object) -> Path:
    path = folder / f"mine{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({key: torch.from_numpy(value.copy()) for key, value in arrays.items()}, path)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_is_read_as_it_is(tmp_path, suffix):
    data = load_dataset(str(saved(tmp_path, suffix, x=X, y=Y)))

    x, y = data.batch([2, 0])
    assert np.array_equal(x.numpy(), X[[2, 0]])
    assert y.tolist() == [2, 0]
    assert (data.name, data.class_names) == ("mine", ("0", "1", "2"))
    assert data.threats == (("Linf", "8/255"),)
    assert data.fingerprint(range(4)) == from_tensors(torch.from_numpy(X), torch.from_numpy(Y)).fingerprint(range(4))
    with pytest.raises(UserError, match="no split called 'train'"):
        other_split(data, "train")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_may_have_several_splits(tmp_path, suffix):
    path = str(saved(tmp_path, suffix, **SPLITS))
    test = load_dataset(path)
    train = other_split(test, "train")

    assert np.array_equal(test.batch([0])[0].numpy(), X[3:])
    assert np.array_equal(train.batch([0, 1, 2])[0].numpy(), X[:3])
    assert (test.split, train.split, train.labels.tolist()) == ("test", "train", [0, 1, 2])
    with pytest.raises(UserError, match="'val'; there are test, train"):
        load_dataset(path, "val")


@pytest.mark.parametrize("shape", [(2, 8, 9, 3), (2, 8, 9, 1), (2, 8, 9), (2, 3, 8, 9)])
def test_uint8_images_of_any_axis_order_are_divided_by_255(tmp_path, shape):
    raw = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    x, _ = load_dataset(str(saved(tmp_path, x=raw, y=Y[:2]))).batch([0, 1])

    channels_first = raw[:, None] if raw.ndim == 3 else raw if shape[1] == 3 else raw.transpose(0, 3, 1, 2)
    assert np.array_equal(x.numpy(), channels_first.astype(np.float32) / np.float32(255))


def test_labels_may_be_a_column_and_classes_named(tmp_path):
    path = saved(tmp_path, x=X, y=Y[:, None].astype(np.uint16), class_names=["cat", "dog", "eel"])
    data = load_dataset(str(path))

    assert data.labels.tolist() == [0, 1, 2, 1]
    assert data.class_names == ("cat", "dog", "eel")


@given(st.floats(-1e-6, 0) | st.floats(1, 1 + 1e-6))
def test_rounding_beyond_0_and_1_is_clamped(value):
    x = torch.full((1, 1, 2, 2), value, dtype=torch.float64)

    assert float(from_tensors(x, torch.tensor([0])).images.max()) == round(value)


def changed(index: tuple[int, ...], value: float) -> np.ndarray:
    x = X.copy()
    x[index] = value
    return x


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"images": X, "y": Y}, r"has no array x \(it has: images, y\)"),
        ({"a": X}, r"has no array x and no y \(it has: a\)"),
        ({"x": X, "y": Y[:3]}, "4 images but 3 labels"),
        ({"x": X[:0], "y": Y[:0]}, "is empty"),
        ({"x": changed((2, 0, 1, 1), np.nan), "y": Y}, "finite; image 2 has NaN"),
        ({"x": changed((1, 0, 1, 1), -np.inf), "y": Y}, "finite; image 1 "),
        ({"x": changed((3, 0, 1, 1), 255), "y": Y}, "image 3 has a value 255: divide by 255"),
        ({"x": changed((1, 0, 1, 1), -2.1), "y": Y}, "image 1 has a value -2.1: undo the normalisation"),
        ({"x": changed((1, 0, 1, 1), 1.01), "y": Y}, "image 1 has a value 1.01: scale"),
        ({"x": X, "y": np.array([0, 1, -1, 1])}, "image 2 has the label -1"),
        ({"x": X, "y": Y.astype(float)}, "must be integers, not float64"),
        ({"x": X, "y": np.eye(4, dtype=int)}, r"not \[4, 4\]"),
        ({"x": X.reshape(4, -1), "y": Y}, r"not \[4, 75\]"),
        ({"x": X.astype(int), "y": Y}, "floats in .* not int64"),
        ({"x": X, "y": Y, "class_names": ["a", "b"]}, "2 class names, but image 2 has the label 2"),
        ({"x": X, "y": np.array([0, {}, 1, 2], dtype=object)}, "contains Python objects"),
        ({"x": np.array(["a", "b", "a", "b"]), "y": Y}, "x in .* has the type <U1, not numbers"),
    ],
)
def test_a_file_that_is_no_data_set_says_why(tmp_path, arrays, sentence):
    with pytest.raises(UserError, match=sentence):
        load_dataset(str(saved(tmp_path, **arrays)))


@pytest.mark.parametrize("kind", [str, bytes, object])
def test_labels_that_are_words_are_refused_with_what_makes_numbers_of_them(tmp_path, kind):
    labels = np.array(["dog", "cat", "dog", "emu"]).astype(kind)
    with pytest.raises(UserError) as error:
        load_dataset(str(saved(tmp_path, x=X, y=labels)))
    names, y = eval(re.search(r"np\.unique\(.*True\)", str(error.value))[0], {"np": np, "labels": labels})

    data = load_dataset(str(saved(tmp_path, x=X, y=y, class_names=names)))
    assert data.class_names == ("cat", "dog", "emu")
    assert data.labels.tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("suffix", "damaged"),
    [
        *[(suffix, lambda raw, size=size: raw[:size]) for suffix in (".npz", ".safetensors") for size in (0, 10, 400)],
        (".npz", lambda raw: raw[:300] + b"0123456789" + raw[310:]),
    ],
)
def test_a_cut_off_or_changed_file_says_so(tmp_path, suffix, damaged):
    path = saved(tmp_path, suffix, x=X, y=Y)
    path.write_bytes(damaged(path.read_bytes()))

    with pytest.raises(UserError, match=rf"not a whole \{suffix} file"):
        load_dataset(str(path))


def test_a_file_that_may_not_be_read_is_not_called_broken(tmp_path, monkeypatch):
    path = saved(tmp_path, x=X, y=Y)
    monkeypatch.setattr("zipfile.ZipFile", Mock(side_effect=PermissionError(13, "Permission denied")))

    with pytest.raises(UserError, match=rf"{path.name} cannot be read \(Permission denied\); check its permissions"):
        load_dataset(str(path))


def test_missing_paths_and_other_kinds_of_files_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("1,2")

    with pytest.raises(UserError, match="no file or folder"):
        load_dataset(str(tmp_path / "gone.npz"))
    with pytest.raises(UserError, match=r"ending in \.npz, \.safetensors"):
        load_dataset(str(tmp_path / "a.csv"))


def test_pictures_of_16_bits_are_refused_by_their_own_type(tmp_path):
    with pytest.raises(UserError, match=r"must be floats in .* or uint8, not uint16"):
        load_dataset(str(saved(tmp_path, x=np.zeros((4, 1, 5, 5), np.uint16), y=Y)))


@pytest.mark.parametrize("channels", [2, 4])
def test_transparency_is_not_taken_for_the_width_of_a_picture(channels, tmp_path):
    with pytest.raises(UserError, match=f"{channels} channels, which stand last; leave the transparency out"):
        load_dataset(str(saved(tmp_path, x=np.zeros((4, 8, 8, channels), np.uint8), y=Y)))


def test_arrays_of_one_split_and_of_several_are_not_mixed(tmp_path):
    with pytest.raises(UserError, match="has arrays x and y, and x_test and y_test, too"):
        load_dataset(str(saved(tmp_path, x=X, y=Y, **SPLITS)))
