"""Data sets of Hugging Face's library `datasets`, from folders of `save_to_disk` and from Python."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from robustkit.data import given_dataset, load_dataset, other_split
from robustkit.errors import UserError

datasets = pytest.importorskip("datasets")


def picture(gray: int) -> Image.Image:
    return Image.new("RGB", (8, 8), (gray, 0, 0))


def table(labels: list[object], label: object = None, **columns: object):
    kind = datasets.ClassLabel(names=["cat", "dog"]) if label is None else label
    features = {"image": datasets.Image(), "label": kind, **{name: datasets.Value("int64") for name in columns}}
    content = {"image": [picture(10 * number) for number in range(len(labels))], "label": labels, **columns}
    return datasets.Dataset.from_dict(content, features=datasets.Features(features))


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    datasets.disable_progress_bars()


def test_a_saved_data_set_has_the_pictures_labels_and_classes_of_the_table():
    table([1, 0, 1]).save_to_disk("pets")
    data = load_dataset("pets")
    x, y = data.batch([2, 0])

    assert (x[:, 0, 0, 0] * 255).tolist() == pytest.approx([20, 0])
    assert [y.tolist(), data.class_names, data.name, tuple(x.shape)] == [[1, 1], ("cat", "dog"), "pets", (2, 3, 8, 8)]
    assert torch.equal(given_dataset(table([1, 0, 1])).batch([2, 0])[0], x)
    assert tuple(load_dataset("pets", image_size=4).batch([0])[0].shape) == (1, 3, 4, 4)


def test_a_dictionary_of_data_sets_has_splits():
    datasets.DatasetDict(train=table([0, 1]), validation=table([1]), test=table([0])).save_to_disk("pets")
    data = load_dataset("pets")

    assert [len(data), len(other_split(data, "train")), len(load_dataset("pets", "val"))] == [1, 2, 1]
    with pytest.raises(UserError, match="no split called 'tset'; there are train, validation, test"):
        load_dataset("pets", "tset")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (lambda: table(["cat", "dog"], datasets.Value("string")), r"class_encode_column\('label'\)"),
        (lambda: table([0.0, 1.9], datasets.Value("float32")), r"must be whole numbers; image 1 has 1\.9"),
        (lambda: table([0.0, float("nan")], datasets.Value("float32")), "must be whole numbers; image 1 has nan"),
        (lambda: table([]), "pets is empty"),
    ],
)
def test_labels_that_are_no_numbers_of_classes_and_tables_without_rows_are_refused(given, sentence):
    given().save_to_disk("pets", num_shards=1)  # or older versions divide by the size of an empty table

    with pytest.raises(UserError, match=sentence):
        load_dataset("pets")


def bare(cell: dict[str, object]):
    """A table whose picture is no picture."""
    data = datasets.Dataset.from_dict(
        {"image": [cell], "label": [0]},
        features=datasets.Features({"image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=["a"])}),
    )
    return data.cast_column("image", datasets.Image())


def half() -> bytes:
    content = io.BytesIO()
    picture(3).save(content, "PNG")
    return content.getvalue()[:45]


TABLES = {
    "a path": (lambda: bare({"bytes": None, "path": "/etc/passwd"}), "is only a path"),
    "an address": (lambda: bare({"bytes": None, "path": "http://127.0.0.1:1/a.png"}), "is only a path"),
    "no picture": (lambda: bare({"bytes": b"%!PS", "path": None}), "cannot be decoded"),
    "half a picture": (lambda: bare({"bytes": half(), "path": None}), "cannot be decoded"),
    "a negative label": (lambda: table([0, -3], datasets.Value("int64")), "image 1 has -3"),
    "a label of 10^9": (lambda: table([10**9], datasets.Value("int64")), "image 0 has 1000000000"),
    "a missing label": (lambda: table([0, None]), "Image 1 of dataset has no label; leave such rows out"),
    "a missing picture": (lambda: bare(None), "Image 0 of the table is empty; leave such rows out"),
    "a transform": (lambda: table([0]).with_transform(lambda rows: rows), r"has a transform \(set_transform\)"),
    "an array for a picture": (
        lambda: datasets.Dataset.from_dict({"image": [[[1, 2]]], "label": [0]}),
        "The column 'image' of dataset is of the kind List, and images are Image; store images",
    ),
    "two columns of labels": (
        lambda: table([0], fine=[1]).rename_column("label", "coarse").cast_column("fine", datasets.ClassLabel(2)),
        "2 columns of labels .coarse, fine.",
    ),
    "no labels": (lambda: table([0]).remove_columns("label"), "0 columns of labels .image."),
    "no pictures": (lambda: table([0], more=[1]).remove_columns("image"), "0 columns of images"),
    "nothing": (lambda: table([]), "is empty"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_without_pictures_and_labels_is_refused_in_one_line(case):
    make, words = TABLES[case]
    with pytest.raises(UserError, match=words) as error:
        given_dataset(make())

    assert "\n" not in str(error.value)


def changed(name: str, **entries: object) -> None:
    file = Path("pets", name)
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


FOLDERS = {
    "a table elsewhere": (lambda: changed("state.json", _data_files=[{"filename": "../a.arrow"}]), "outside of its"),
    "a missing table": (lambda: changed("state.json", _data_files=[{"filename": "a.arrow"}]), "cannot be read"),
    "an unknown kind": (lambda: changed("dataset_info.json", features={"a": [{"_type": "Path"}]}), "unknown kind Path"),
    "brackets": (lambda: Path("pets/state.json").write_text("[" * 10**5), "cannot be read"),
    "a cut table": (
        lambda: [file.write_bytes(file.read_bytes()[:300]) for file in Path("pets").glob("*.arrow")], "cannot be read"
    ),
    "a split": (lambda: None, "is one split"),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDERS)
def test_a_broken_folder_is_refused_in_one_line(case):
    table([0, 1]).save_to_disk("pets")
    edit, words = FOLDERS[case]
    edit()
    with pytest.raises(UserError, match=words) as error:
        load_dataset("pets", "train" if case == "a split" else "test")

    assert "\n" not in str(error.value)


def test_a_split_elsewhere_is_refused():
    datasets.DatasetDict(test=table([0])).save_to_disk("pets")
    Path("pets/dataset_dict.json").write_text(json.dumps({"splits": ["../../test"]}))

    with pytest.raises(UserError, match="does not list splits"):
        load_dataset("pets")


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    table([0]).save_to_disk("pets")
    monkeypatch.setitem(sys.modules, "datasets", None)

    with pytest.raises(UserError, match=r"pip install datasets"):
        load_dataset("pets")
