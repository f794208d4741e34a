from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from robustkit.data import load_dataset, other_split
from robustkit.errors import UserError


def picture(path: Path, width: int = 6, height: int = 6, shade: int = 51) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((height, width, 3), shade, np.uint8)).save(path)
    return path


def test_a_folder_has_one_sub_folder_per_class(tmp_path):
    picture(tmp_path / "cat" / "1.png", shade=51)
    picture(tmp_path / "dog" / "1.png", shade=102)
    data = load_dataset(str(tmp_path))

    x, y = data.batch([1, 0])
    assert data.class_names == ("cat", "dog")
    assert y.tolist() == [1, 0]
    assert torch.allclose(x, torch.tensor([0.4, 0.2]).view(2, 1, 1, 1).expand(2, 3, 6, 6))
    with pytest.raises(UserError, match="no split called 'train'"):
        other_split(data, "train")


@pytest.mark.parametrize(
    ("folders", "lacking", "of"),
    [
        (("train/a", "train/b", "train/c", "test/a", "test/c"), "test", "b"),
        (("val/a", "val/b", "val/c", "test/a", "test/c"), "test", "b"),
        (("train/a", "train/c", "test/a", "test/b", "test/c"), "train", "b"),
    ],
)
def test_a_split_without_the_folder_of_a_class_is_refused(tmp_path, folders, lacking, of):
    """A label is the position of a folder: without one of them, all later labels meant other classes, in silence."""
    for name in folders:
        picture(tmp_path / name / "1.png")
    with pytest.raises(UserError, match=rf"{lacking} lacks folders .* \({of}\), .* create the missing ones"):
        load_dataset(str(tmp_path))
    (tmp_path / lacking / of).mkdir()

    assert load_dataset(str(tmp_path)).batch([0, 1])[1].tolist() == ([0, 2] if lacking == "test" else [0, 1])


def test_what_is_no_other_split_has_folders_of_its_own(tmp_path):
    for name in ("test/a", "val/a", "sketches/z"):
        picture(tmp_path / name / "1.png")
    picture(tmp_path / "train" / "1.png")
    (tmp_path / "val" / "b").mkdir()
    (tmp_path / "test" / "b").mkdir()

    assert load_dataset(str(tmp_path)).class_names == ("a", "b")


@pytest.mark.parametrize("colours", [(30, 60, 90), (51, 51, 51)])
def test_pictures_can_be_read_with_one_channel(tmp_path, colours):
    for split in ("train", "test"):
        (tmp_path / split / "cat").mkdir(parents=True)
        Image.new("RGB", (6, 6), colours).save(tmp_path / split / "cat" / "1.png")
    data = load_dataset(str(tmp_path), gray=True)
    luma = int(0.299 * colours[0] + 0.587 * colours[1] + 0.114 * colours[2] + 0.5) / 255  # ITU-R 601-2

    for each in (data, other_split(data, "train")):
        assert torch.allclose(each.batch([0])[0], torch.full((1, 1, 6, 6), luma))
    assert data.fingerprint([0]) != load_dataset(str(tmp_path)).fingerprint([0])


def test_what_holds_no_pictures_cannot_be_read_as_gray(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.zeros((2, 3, 4, 4), np.uint8), y=np.array([0, 1]))

    for name in ("digits", str(tmp_path / "own.npz")):
        with pytest.raises(UserError, match="Only image files can be read as gray"):
            load_dataset(name, gray=True)


@pytest.mark.parametrize("place", [".ipynb_checkpoints", "__pycache__", "cat/.ipynb_checkpoints"])
def test_what_editors_leave_behind_is_no_class_and_no_picture(tmp_path, place):
    for name in ("cat/1.png", "dog/1.png", f"{place}/1-checkpoint.png"):
        picture(tmp_path / name)
    data = load_dataset(str(tmp_path))

    assert (data.class_names, len(data)) == (("cat", "dog"), 2)


@pytest.mark.parametrize("name", ["1.gif", "1.AVIF", "1.heic"])
def test_a_picture_of_a_kind_that_is_not_read_is_not_left_out_in_silence(tmp_path, name):
    """Of 180 pictures 130 were evaluated, without a word: the other 50 were GIFs."""
    picture(tmp_path / "cat" / "0.png")
    (tmp_path / "cat" / name).write_bytes(b"")

    with pytest.raises(UserError, match=rf"{name} is an image in a format that robustkit does not read.*convert"):
        load_dataset(str(tmp_path))


def test_only_the_requested_images_are_decoded(tmp_path):
    picture(tmp_path / "cat" / "1.png")
    (tmp_path / "cat" / "2.png").write_bytes(b"not a picture")
    data = load_dataset(str(tmp_path))

    assert data.batch([0])[0].shape == (1, 3, 6, 6)
    with pytest.raises(UserError, match=r"2\.png cannot be decoded"):
        data.batch([0, 1])


def test_a_sub_folder_with_the_name_of_the_split_is_used(tmp_path):
    picture(tmp_path / "train" / "cat" / "1.png", shade=0)
    picture(tmp_path / "test" / "cat" / "1.png", shade=255)
    test = load_dataset(str(tmp_path))

    assert float(test.batch([0])[0].mean()) == 1.0
    assert float(other_split(test, "train").batch([0])[0].mean()) == 0.0


def test_images_of_two_sizes_are_refused_unless_they_are_resized(tmp_path):
    picture(tmp_path / "cat" / "1.png", 6, 7)
    picture(tmp_path / "cat" / "2.png", 8, 9)

    with pytest.raises(UserError, match=r"first is 6x7, .*2\.png is 8x9; resize them first, or pass --image-size"):
        load_dataset(str(tmp_path)).batch([1])
    assert load_dataset(str(tmp_path), image_size=4).batch([0, 1])[0].shape == (2, 3, 4, 4)


def test_the_fingerprint_changes_with_the_bytes_of_a_file_and_the_size(tmp_path):
    file = picture(tmp_path / "cat" / "1.png")
    data = load_dataset(str(tmp_path))
    before = data.fingerprint([0])

    file.write_bytes(file.read_bytes() + b"\0")

    assert data.fingerprint([0]) != before
    assert load_dataset(str(tmp_path), image_size=4).fingerprint([0]) != data.fingerprint([0])


@pytest.fixture
def imagenet(tmp_path):
    for number in range(1000):
        (tmp_path / "val" / f"n{number:08}").mkdir(parents=True)
    picture(tmp_path / "val" / "n00000007" / "1.png", 300, 280)
    return tmp_path


def test_imagenet_is_its_val_folder_at_224_pixels_with_all_classes(imagenet):
    data = load_dataset("ImageNet", data_dir=imagenet)

    x, y = data.batch([0])
    assert x.shape == (1, 3, 224, 224)
    assert (int(y), data.class_names[7]) == (7, "cock")
    assert data.threats == (("Linf", "4/255"),)

    (imagenet / "val" / "n00000500").rmdir()
    with pytest.raises(UserError, match="999 class folders"):
        load_dataset("imagenet", data_dir=imagenet)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (".", {}, "one sub-folder per class"),
        ("imagenet", {}, "--data-dir DIR"),
        ("imagenet", {"data_dir": ".", "download": True}, "cannot be downloaded"),
        ("imagenet", {"data_dir": "."}, r"no folder .*val"),
    ],
)
def test_an_empty_folder_is_refused_with_what_it_needs(tmp_path, monkeypatch, name, options, sentence):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UserError, match=sentence):
        load_dataset(name, **options)


@pytest.mark.parametrize("name", ["moving.png", "pages.tif", "moving.webp"])
def test_a_picture_of_several_frames_is_not_read_as_its_first_one(tmp_path, name):
    frames = [Image.fromarray(np.full((6, 6, 3), shade, np.uint8)) for shade in (51, 102)]
    picture(tmp_path / "cat" / "1.png")
    frames[0].save(tmp_path / "cat" / name, save_all=True, append_images=frames[1:])

    data = load_dataset(str(tmp_path))

    with pytest.raises(UserError, match=f"{name} has several frames or pages; save one of them"):
        data.batch([1])


def test_a_picture_that_is_too_large_names_the_fix(tmp_path, monkeypatch):
    picture(tmp_path / "cat" / "1.png", width=9, height=12)
    monkeypatch.setattr("robustkit.limits.PICTURE_PIXELS", 100)

    with pytest.raises(UserError, match=r"9x12 pixels; at most 100 are decoded: scale it down"):
        load_dataset(str(tmp_path)).batch([0])


def test_hidden_files_are_no_pictures(tmp_path):
    """macOS leaves a file ._1.png beside 1.png on foreign disks, which is no picture."""
    picture(tmp_path / "cat" / "1.png")
    (tmp_path / "cat" / "._1.png").write_bytes(b"\0\5\26\7")

    assert len(load_dataset(str(tmp_path))) == 1


@pytest.mark.parametrize(
    ("name", "fix"),
    [("a.tar.gz", "unpack it"), ("a.parquet", "save_to_disk"), ("a.csv", r"\.safetensors or \.tar, or FILE\.py:NAME")],
)
def test_a_file_that_is_no_data_set_gets_the_fix_for_its_kind(tmp_path, name, fix):
    (tmp_path / name).write_bytes(b"x")

    with pytest.raises(UserError, match=f"is not a data set; .*{fix}"):
        load_dataset(str(tmp_path / name))
