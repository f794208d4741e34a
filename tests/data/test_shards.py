"""WebDataset's tar files as data."""

import io
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from robustkit.data import load_dataset, other_split
from robustkit.errors import UserError


def picture(gray: int, side: int = 8) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (side, side), (gray, 0, 0)).save(content, "PNG")
    return content.getvalue()


def tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def samples(*labels: int, start: int = 0) -> dict[str, bytes]:
    members = {}
    for number, label in enumerate(labels, start):
        members |= {f"{number:03}.cls": b"%d\n" % label, f"{number:03}.png": picture(10 * number),
                    f"{number:03}.json": b"{}", f"{number:03}.pyd": b"never opened"}  # fmt: skip
    return members


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_pictures_and_labels_come_in_the_order_of_the_tars():
    tar(Path("set/test-001.tar"), samples(0, start=2))
    tar(Path("set/test-000.tar"), samples(2, 1))
    data = load_dataset("set")
    x, y = data.batch([2, 0, 1])

    assert (x[:, 0, 0, 0] * 255).tolist() == pytest.approx([20, 0, 10])
    assert y.tolist() == [0, 2, 1]
    assert [data.class_names, data.name, tuple(x.shape)] == [("0", "1", "2"), "set", (3, 3, 8, 8)]
    assert load_dataset("set/test-{000..001}.tar").fingerprint([0, 2]) == data.fingerprint([0, 2])


@pytest.mark.parametrize("names", [("a/train/0.tar", "a/test/0.tar"), ("a/x-train-00.tar", "a/x-test-00.tar")])
def test_a_folder_has_its_splits_in_folders_or_names(names):
    train, test = map(Path, names)
    tar(train, samples(0, 1, 1))
    tar(test, samples(1))
    data = load_dataset("a")

    assert [len(data), len(other_split(data, "train"))] == [1, 3]
    with pytest.raises(UserError, match="no split called 'val'; there are test, train"):
        load_dataset("a", "val")


def test_classes_are_named_by_a_file_and_pictures_are_resized():
    file = tar(Path("a/b.tar"), {"0.cls": b"1", "0.png": picture(9, 40)})
    (file.parent / "classnames.txt").write_text("cat\ndog\n")
    data = load_dataset("a/b.tar", image_size=16)

    assert [data.class_names, tuple(data.batch([0])[0].shape)] == [("cat", "dog"), (1, 3, 16, 16)]


@pytest.mark.parametrize(("names", "line"), [("cat\n\ndog\n", 2), ("\ncat\ndog\n", 1)])
def test_an_empty_line_among_the_names_is_refused(names, line):
    """Without it all later names belonged to the class before."""
    file = tar(Path("a/b.tar"), samples(0, 1))
    (file.parent / "classnames.txt").write_text(names)

    with pytest.raises(UserError, match=f"Line {line} of .* is empty"):
        load_dataset("a/b.tar")


def special(kind: bytes, name: str = "000.png"):
    def write(path: Path) -> None:
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)

    return write


def claimed(path: Path) -> None:
    """A header of names that claims 8 GB, as a sparse file would hold them."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**33
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(2**33 + 2048)


def huge(path: Path) -> None:
    info = tarfile.TarInfo("000.png")
    info.size = 2**33
    with path.open("wb") as file:
        file.write(info.tobuf())
        file.truncate(2**33 + 2048)


HOSTILE = {
    "a name that leads out": ({"../../000.png": picture(0)}, "points outside of the tar file"),
    "an absolute name": ({"/etc/000.cls": b"0"}, "points outside of the tar file"),
    "a link": (special(tarfile.SYMTYPE), "is not a regular file"),
    "a hard link": (special(tarfile.LNKTYPE), "is not a regular file"),
    "a device": (special(tarfile.CHRTYPE, "000.cls"), "is not a regular file"),
    "a header of 8 GB": (claimed, r"not a whole plain tar file \(a header of 8,589,93"),
    "a picture of 8 GB": (huge, "has 8,589,934,592 bytes"),
    "a broken picture": ({"0.cls": b"0", "0.png": b"no picture"}, "0.png in .*a.tar cannot be decoded"),
    "half a picture": ({"0.cls": b"0", "0.png": picture(1)[:45]}, "cannot be decoded"),
    "a label of words": ({"0.cls": b"cat", "0.png": picture(1)}, "holds 'cat'; a label is a number"),
    "a negative label": ({"0.cls": b"-1", "0.png": picture(1)}, "holds '-1'"),
    "a label of 10^9": ({"0.cls": b"1000000000", "0.png": picture(1)}, "a label is a number from 0 to 49,999"),
    "a label of 1 MB": ({"0.cls": b"1" * 10**6, "0.png": picture(1)}, "at most 32 are read"),
    "a pickle for a label": ({"0.pyd": b"x", "0.png": picture(1)}, "has no label .*Pickles are not read"),
    "a pickle for a picture": ({"0.pickle": b"x", "0.cls": b"1"}, "has no image"),
    "two pictures of one key": ({"0.jpg": b"", "0.png": b"", "0.cls": b"0"}, "appears twice"),
    "nothing": ({}, "has no images"),
    "no tar": (lambda path: path.write_bytes(b"hello" * 1000), "not a whole plain tar file"),
    "an empty file": (lambda path: path.write_bytes(b""), "not a whole plain tar file"),
    "a cut tar": (lambda path: path.write_bytes(tar(Path("b.tar"), samples(0)).read_bytes()[:1500]), "not a whole"),
    "a packed tar": (lambda path: tar(path, samples(0), "w:gz"), "not a whole plain tar file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_tar_is_refused_in_one_line(case):
    content, words = HOSTILE[case]
    path = Path("a.tar")
    if callable(content):
        content(path)
    else:
        tar(path, content)
    with pytest.raises(UserError, match=words) as error:
        load_dataset("a.tar")

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.tar", "There is no file gone.tar"),
        ("a-{0..2}.tar", "There is no file a-1.tar"),
        ("a-{2..0}.tar", "must be a range"),
        ("a-{0..999999999}.tar", "must be a range"),
    ],
)
def test_tars_that_are_not_there_are_named(name, words):
    tar(Path("a-0.tar"), samples(0))
    with pytest.raises(UserError, match=words):
        load_dataset(name)


def test_names_for_fewer_classes_than_labels_are_refused():
    tar(Path("a/b.tar"), samples(0, 3))
    Path("a/classnames.txt").write_text("cat\ndog\n")

    with pytest.raises(UserError, match="2 class names, but image 1 has the label 3"):
        load_dataset("a")
