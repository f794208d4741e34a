"""Published folders: each image is matched with its clean one, and what does not fit is one clear line."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from robustkit.common_corruptions.choice import corruption_suite
from robustkit.common_corruptions.suite import CorruptionLevel, images_of
from robustkit.data import load_dataset
from robustkit.data.arrays import from_tensors
from robustkit.errors import UserError

N = 4
DATA = from_tensors(torch.rand(N, 3, 6, 6), torch.tensor([0, 1, 2, 1]), name="small")


def arrays(folder: Path, count: int = 5 * N, dtype: type = np.uint8, labels: object = None) -> Path:
    """A folder like CIFAR-10-C whose pixels say which image and severity they are of."""
    folder.mkdir()
    for number, name in enumerate(["fog", "snow"]):
        content = (np.arange(count) + 100 * number).reshape(-1, 1, 1, 1)
        np.save(folder / f"{name}.npy", np.broadcast_to(content, (count, 6, 6, 3)).astype(dtype))
    np.save(folder / "labels.npy", np.tile([0, 1, 2, 1], 5) if labels is None else np.asarray(labels))
    return folder


def photographs(folder: Path) -> Path:
    """A folder like ImageNet-C, and beside it the clean pictures."""
    for place in ("clean", *(f"c/fog/{severity}" for severity in range(1, 6))):
        for name, label in (("n1/a.png", 0), ("n1/b.png", 1), ("n2/a.png", 2)):
            file = folder / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            level = 40 * label + (0 if place == "clean" else int(place[-1]))
            Image.fromarray(np.full((6, 6, 3), level, np.uint8)).save(file)
    return folder / "c"


def test_an_array_holds_all_images_of_one_severity_after_those_of_another(tmp_path):
    suite = corruption_suite([arrays(tmp_path / "c")], DATA, 0)
    made = suite.pictures(CorruptionLevel("snow", 3), [2, 0], DATA.images)

    assert suite.cells == tuple(CorruptionLevel(name, severity) for name in ("snow", "fog") for severity in range(1, 6))
    assert made[:, 0, 0, 0].tolist() == [100 + 2 * N + 2, 100 + 2 * N]
    assert images_of(made).shape == (2, 3, 6, 6)


def test_pictures_are_found_by_severity_class_and_name(tmp_path):
    folder = photographs(tmp_path)
    suite = corruption_suite([folder], load_dataset(str(tmp_path / "clean")), 0)
    made = suite.pictures(CorruptionLevel("fog", 4), [2, 0], torch.empty(0))

    assert made[:, 0, 0, 0].tolist() == [84, 4]


@pytest.mark.parametrize("size", [None, 4])
def test_pictures_have_the_channels_of_the_clean_ones(tmp_path, size):
    """Beside clean pictures that were read as gray they were read in colour, and refused."""
    folder = photographs(tmp_path)
    suite = corruption_suite([folder], load_dataset(str(tmp_path / "clean"), image_size=size, gray=True), 0)
    made = suite.pictures(CorruptionLevel("fog", 4), [2, 0], torch.empty(0))

    assert made.shape == (2, size or 6, size or 6, 1)
    assert made[:, 0, 0, 0].tolist() == [84, 4]


def test_mnist_c_has_one_severity(tmp_path):
    data = from_tensors(torch.rand(N, 1, 6, 6), torch.tensor([0, 1, 2, 1]))
    for name in ("stripe", "fog_of_mnist"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "test_images.npy", np.full((N, 6, 6, 1), 9, np.uint8))
        np.save(tmp_path / name / "test_labels.npy", np.array([0, 1, 2, 1]))

    assert corruption_suite([tmp_path], data, 0).cells == (
        CorruptionLevel("fog_of_mnist", 1),
        CorruptionLevel("stripe", 1),
    )


def test_other_images_change_the_description(tmp_path):
    first = corruption_suite([arrays(tmp_path / "c")], DATA, 0).described()
    np.save(tmp_path / "c" / "fog.npy", np.zeros((5 * N, 6, 6, 3), np.uint8))
    second = corruption_suite([tmp_path / "c"], DATA, 0).described()

    assert first["sha256"]["snow"] == second["sha256"]["snow"]
    assert first["sha256"]["fog"] != second["sha256"]["fog"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"count": 4 * N}, "5 severities of the 4 images"),
        ({"dtype": np.float32}, "float32"),
        ({"labels": [0, 1, 2, 2] * 5}, "label for image 3"),
        ({"labels": [0, 1]}, "has the shape"),
        ({"labels": np.array([{}] * N, dtype=object)}, "labels.npy is not a whole"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_one_line(tmp_path, change, word):
    with pytest.raises(UserError, match=word) as error:
        corruption_suite([arrays(tmp_path / "c", **change)], DATA, 0)

    assert "\n" not in str(error.value)


def test_broken_files_and_missing_severities_are_refused_in_one_line(tmp_path):
    folder = arrays(tmp_path / "c")
    whole = (folder / "fog.npy").read_bytes()
    for content in (whole[:200], b"", b"\x93NUMPY\x03" + b"\xff" * 50):
        (folder / "fog.npy").write_bytes(content)
        with pytest.raises(UserError, match="not a whole"):
            corruption_suite([folder], DATA, 0)

    pictures = photographs(tmp_path / "of pictures")
    clean = load_dataset(str(tmp_path / "of pictures" / "clean"))
    (pictures / "fog" / "2" / "n1" / "b.png").unlink()
    with pytest.raises(UserError, match=r"no image .*b\.png for image 1"):
        corruption_suite([pictures], clean, 0).described()
    (pictures / "fog" / "5").rename(tmp_path / "away")
    with pytest.raises(UserError, match="no folder for severity 5"):
        corruption_suite([pictures], clean, 0)
    with pytest.raises(UserError, match="not a folder of corrupted images"):
        corruption_suite([tmp_path / "of pictures" / "clean"], clean, 0)


def test_names_choose_among_generated_and_published_corruptions(tmp_path):
    folder = arrays(tmp_path / "c")

    assert {cell.corruption for cell in corruption_suite([folder, "fog"], DATA, 0).cells} == {"fog"}
    assert corruption_suite(["snow", "fog"], DATA, 0, [2]).cells == (
        CorruptionLevel("snow", 2),
        CorruptionLevel("fog", 2),
    )
    for chosen, word in ((["fogg"], "fog"), ([folder, "rain"], "rain"), (["published"], "No published")):
        with pytest.raises(UserError, match=word):
            corruption_suite(chosen, DATA, 0)
