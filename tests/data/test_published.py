import hashlib
import pickle
import struct
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import scipy.io
import torchvision

from robustkit.data import load_dataset
from robustkit.errors import UserError

rng = np.random.default_rng(0)


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


def write_mnist(folder: Path, name: str) -> np.ndarray:
    """The four files of MNIST's format with 5 images a split; returns the test images."""
    for part in ("train", "t10k"):
        images = rng.integers(0, 256, (5, 28, 28), dtype=np.uint8)
        write_idx(folder / name / "raw" / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / name / "raw" / f"{part}-labels-idx1-ubyte", np.arange(5, dtype=np.uint8))
    return images


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_cifar(
    folder: Path, build: type, monkeypatch: pytest.MonkeyPatch, labels: str, names: list[str]
) -> np.ndarray:
    """CIFAR's pickled batches with 2 images each; returns the test images."""
    base = folder / build.base_folder
    base.mkdir()
    for attribute in ("train_list", "test_list"):
        checksums = []
        for file, _ in getattr(build, attribute):
            rows = rng.integers(0, 256, (2, 3072), dtype=np.uint8)
            (base / file).write_bytes(pickle.dumps({"data": rows, labels: [1, 0]}))
            checksums.append([file, md5(base / file)])
        monkeypatch.setattr(build, attribute, checksums)
    meta = build.meta
    (base / meta["filename"]).write_bytes(pickle.dumps({meta["key"]: names}))
    monkeypatch.setattr(build, "meta", {**meta, "md5": md5(base / meta["filename"])})
    return rows.reshape(2, 3, 32, 32)


@pytest.mark.parametrize(
    ("name", "folder", "eps"),
    [("mnist", "MNIST", "0.3"), ("fashionmnist", "FashionMNIST", "0.1"), ("kmnist", "KMNIST", "0.3")],
)
def test_the_mnist_family_is_read_from_its_files(tmp_path, name, folder, eps):
    images = write_mnist(tmp_path, folder)
    data = load_dataset(name, data_dir=tmp_path)

    x, y = data.batch([4, 1])
    assert np.array_equal(x[:, 0].numpy(), images[[4, 1]].astype(np.float32) / 255)
    assert y.tolist() == [4, 1]
    assert data.threats == (("Linf", eps),)
    assert len(data.class_names) == 10
    assert load_dataset(name, "train", data_dir=tmp_path).fingerprint([0]) != data.fingerprint([0])


@pytest.mark.parametrize(("name", "labels"), [("cifar10", "labels"), ("cifar100", "fine_labels")])
def test_cifar_is_read_from_its_batches(tmp_path, monkeypatch, name, labels):
    build = getattr(torchvision.datasets, name.upper())
    images = write_cifar(tmp_path, build, monkeypatch, labels, ["plane", "car"])
    data = load_dataset(name, data_dir=tmp_path)

    x, y = data.batch([0, 1])
    assert np.array_equal(x.numpy(), images.astype(np.float32) / 255)
    assert y.tolist() == [1, 0]
    assert data.class_names == ("plane", "car")
    assert data.threats == (("Linf", "8/255"), ("L2", "0.5"))


def test_svhn_is_read_from_its_matrix_and_ten_means_zero(tmp_path, monkeypatch):
    images = rng.integers(0, 256, (32, 32, 3, 2), dtype=np.uint8)
    path = tmp_path / "test_32x32.mat"
    scipy.io.savemat(path, {"X": images, "y": np.array([[10], [3]], dtype=np.uint8)})
    entry = torchvision.datasets.SVHN.split_list["test"]
    monkeypatch.setitem(torchvision.datasets.SVHN.split_list, "test", [*entry[:2], md5(path)])
    data = load_dataset("svhn", data_dir=tmp_path)

    x, y = data.batch([0, 1])
    assert np.array_equal(x.numpy(), images.transpose(3, 2, 0, 1).astype(np.float32) / 255)
    assert y.tolist() == [0, 3]


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn"])
def test_missing_files_and_splits_are_refused_with_the_fix(tmp_path, name):
    with pytest.raises(UserError, match=r"--data-dir DIR.*--download"):
        load_dataset(name)
    with pytest.raises(UserError, match=f"no whole copy of {name} .*--download"):
        load_dataset(name, data_dir=tmp_path)
    with pytest.raises(UserError, match="'val'; there are train, test"):
        load_dataset(name, "val", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "inner"),
    [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python"), ("mnist", "MNIST"), ("mnist", "MNIST/raw")],
)
def test_the_inner_folder_in_place_of_its_parent_is_called_so(tmp_path, monkeypatch, name, inner):
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / inner).mkdir(exist_ok=True)

    monkeypatch.chdir(tmp_path / inner)
    with pytest.raises(UserError, match=rf"give its parent: --data-dir .*{tmp_path.name}\.$"):
        load_dataset(name, data_dir=".")


def test_a_cut_off_file_names_the_fix(tmp_path):
    write_mnist(tmp_path, "MNIST")
    (tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")

    with pytest.raises(UserError, match=r"cannot be read .*remove them"):
        load_dataset("mnist", data_dir=tmp_path)


def test_a_failed_download_names_the_fix(tmp_path, monkeypatch):
    def offline(self: object) -> None:
        raise URLError("no route")

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", offline)

    with pytest.raises(UserError, match=r"could not be downloaded .*no route.*by hand"):
        load_dataset("cifar10", data_dir=tmp_path, download=True)
