"""Masks, class names and networks in files with damaged bytes: one line, whatever the library raises."""

import io
import struct
import zipfile

import numpy as np
import pytest
from PIL import Image

from robustkit.data import load_dataset
from robustkit.data.masks import load_mask
from robustkit.errors import UserError
from robustkit.models import load_model


def refused(call) -> None:
    with pytest.raises(UserError) as error:
        call()

    assert "\n" not in str(error.value)


def test_a_picture_that_is_cut_off_is_no_mask(tmp_path):
    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, "PNG")
    whole = file.getvalue()
    for length in (20, len(whole) // 2, len(whole) - 20):
        (tmp_path / "mask.png").write_bytes(whole[:length])
        refused(lambda: load_mask(tmp_path / "mask.png"))


@pytest.mark.parametrize("byte", [b"\x8e", b"(", b"\x00"])
def test_an_array_with_a_damaged_header_is_no_mask(tmp_path, byte):
    np.save(tmp_path / "mask.npy", np.ones((8, 8), bool))
    content = (tmp_path / "mask.npy").read_bytes()
    (tmp_path / "mask.npy").write_bytes(content[:75] + byte + content[76:])

    refused(lambda: load_mask(tmp_path / "mask.npy"))


def test_class_names_of_letters_that_do_not_exist_are_one_line(tmp_path):
    names = np.array(["a", "b"])
    names.view(np.uint32)[0] = 0x7FFFFFFF
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 1, 8, 8), np.float32), y=np.array([0, 1]), class_names=names)

    refused(lambda: load_dataset(str(tmp_path / "x.npz")))


def test_an_archive_whose_names_are_no_text_is_no_network(tmp_path):
    with zipfile.ZipFile(tmp_path / "net.pt", "w") as archive:
        archive.writestr("net/code/é.py", "")
    content = (tmp_path / "net.pt").read_bytes().replace("é".encode(), struct.pack("2B", 0xFF, 0xFE))
    (tmp_path / "net.pt").write_bytes(content)

    refused(lambda: load_model(str(tmp_path / "net.pt"), dataset="digits"))
