"""Images that are there several times are counted, and nothing is decoded for it."""

import shutil
from dataclasses import replace

import torch

from robustkit.data import from_tensors, load_dataset
from robustkit.data.copies import count_copies, warning_of_copies
from robustkit.data.eight_bits import EightBitImages
from robustkit.data.part import DatasetPart
from tests.data.test_folder import picture
from tests.small import data, evaluated, linear


def test_copies_are_counted_among_the_images_of_a_run_alone():
    x, y = torch.rand(4, 1, 2, 2), torch.arange(4)
    whole = from_tensors(x[[0, 1, 0, 2, 0, 3]], y[[0, 1, 0, 2, 0, 3]])

    assert count_copies(whole, range(6)) == 2
    assert count_copies(whole, [1, 2, 3, 4]) == 1
    assert count_copies(EightBitImages(DatasetPart(whole, (0, 2, 5))), [0, 1, 2]) == 1


def test_one_image_with_two_labels_is_no_copy():
    assert count_copies(from_tensors(torch.zeros(3, 1, 2, 2), torch.arange(3)), range(3)) == 0


def test_copies_of_files_are_found_without_decoding(tmp_path):
    first = picture(tmp_path / "cat" / "1.png", shade=51)
    shutil.copy(first, tmp_path / "cat" / "2.png")
    picture(tmp_path / "cat" / "3.png", shade=102)  # of the same size
    shutil.copy(first, picture(tmp_path / "dog" / "1.png"))  # with another label
    files = load_dataset(str(tmp_path))

    assert count_copies(replace(files, items=None), range(len(files))) == 1


def test_a_few_copies_among_many_images_are_not_mentioned():
    many = from_tensors(torch.arange(200.0).div(200).view(200, 1, 1, 1)[[0, *range(199)]], torch.zeros(200).long())

    assert count_copies(many, range(200)) == 1
    assert warning_of_copies(many, range(200)) == []
    assert len(warning_of_copies(many, range(100))) == 1


def test_copies_do_not_shorten_intervals_in_silence(tmp_path):
    x, y = data(10)
    copied = {"dataset": (x.repeat(2, 1, 1, 1), y.repeat(2)), "attacks": "fgsm", "eps": "0.1", "checks": "none"}
    runs = [evaluated(linear(), tmp_path, samples=samples, **copied) for samples in (15, 20)]
    said = [[text for text in run.manifest["warnings"] if "copies" in text] for run in runs]

    assert [len(texts) for texts in said] == [1, 1]
    assert "of 15 images are copies" in said[0][0]
    assert said[1][0].startswith("10 of 20 images are copies")
