"""Data, weights and models are untrusted files: each hostile one is refused in one line, and none runs code."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from robustkit.data import load_dataset
from robustkit.errors import UserError
from robustkit.host.environment import chosen_device
from robustkit.models import load_model
from tests.hostile.files import ARRAY_FILES, DESCRIBED_MODELS, PATHS, PICTURE_FOLDERS, SAFETENSORS_FILES, TORCH_FILES
from tests.hostile.guard import MEMORY, not_refused, run_limited

FACTORY = "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBUSTKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "net.py").write_text(FACTORY)
    yield tmp_path
    assert "CODE_RAN" not in os.listdir(tmp_path)  # some tests break Path.stat


def made(table, place):
    """The path of each file of a table, in a folder of its own."""
    for number, (name, file) in enumerate(table.items()):
        folder = place / str(number)
        folder.mkdir()
        yield name, str(file.make(folder))


def weights(path: str) -> object:
    return load_model("net.py:make", dataset="digits", weights=path)


def pixels(path: str, **more: object) -> object:
    data = load_dataset(path, **more)
    return [data.batch([number])[0].shape for number in range(len(data))]


def test_a_hostile_checkpoint_is_refused_in_one_line(place):
    files = made({**TORCH_FILES, **{f"safetensors: {name}": file for name, file in SAFETENSORS_FILES.items()}}, place)

    assert not not_refused((name, lambda path=path: weights(path)) for name, path in files)


def test_a_hostile_description_of_a_model_is_refused_in_one_line(place):
    files = ((name, file) for name, file in DESCRIBED_MODELS.items() if "timm" not in name)  # its import takes seconds

    assert not not_refused(
        (name, lambda path=path: load_model(path, dataset="digits")) for name, path in made(dict(files), place)
    )


def test_a_hostile_file_of_arrays_is_refused_in_one_line(place):
    assert not not_refused((name, lambda path=path: pixels(path)) for name, path in made(ARRAY_FILES, place))


@pytest.mark.parametrize("size", [None, 32])
def test_a_hostile_folder_of_pictures_is_refused_in_one_line(place, size):
    # A photo of 81 megapixels is honest where it is resized.
    table = {name: file for name, file in PICTURE_FOLDERS.items() if size is None or name != "9000 x 9000"}

    assert not not_refused((name, lambda path=path: pixels(path, image_size=size)) for name, path in made(table, place))


READERS = {
    "data": load_dataset,
    "folder of CIFAR-10": lambda path: load_dataset("cifar10", data_dir=path),
    "folder of ImageNet": lambda path: load_dataset("imagenet", data_dir=path),
    "weights": weights,
    "model": lambda path: load_model(path, dataset="digits"),
    "code": lambda path: load_model(f"{path}.py:make", dataset="digits"),
    "model file": lambda path: load_model(f"{path}.safetensors", dataset="digits"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_path_that_cannot_be_looked_up_is_refused_in_one_line(place, reader):
    servers = reader in ("model", "code", "model file")  # whose addresses name a model
    paths = [path for path in PATHS if "\n" not in path and not (servers and path.startswith("http"))]

    assert not not_refused((path, lambda path=path: READERS[reader](path)) for path in paths)


def test_a_claimed_size_is_refused_before_memory_is_taken(place):
    names = ("a bomb of 3.5 GiB", "a bomb of 200 MiB", "labels of 3e8", "a claimed shape (1000000000, 3, 224, 224)")
    paths = [str(path) for _, path in made({name: ARRAY_FILES[name] for name in names}, place)]
    folders = [path for name, path in made_pictures(place) if "000" in name]
    small = str(place / "small.npz")
    np.savez(small, x=np.zeros((2, 1, 8, 8), np.float32), y=[0, 1])

    def load_each() -> None:
        import PIL.Image  # noqa: F401

        load_dataset(small)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for path in paths + folders:
            with pytest.raises(UserError):
                load_dataset(path)
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY

    assert run_limited(load_each, place) == (0, "")


def made_pictures(place):
    folder = place / "pictures"
    folder.mkdir()
    return made(PICTURE_FOLDERS, folder)


def test_a_folder_may_have_links_that_end(place):
    from PIL import Image

    (place / "photos" / "a").mkdir(parents=True)
    (place / "real" / "deep").mkdir(parents=True)
    for number, file in enumerate((place / "photos" / "a" / "1.png", place / "real" / "deep" / "2.PNG")):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(file)
    (place / "photos" / "b").symlink_to(place / "real")
    (place / "photos" / "a" / "notes.txt").write_text("no picture")
    data = load_dataset("photos")

    assert [data.class_names, data.labels.tolist()] == [("a", "b"), [0, 1]]
    assert data.batch([1])[0][0, 0, 0, 0] == pytest.approx(1 / 255)


def test_pictures_have_the_order_of_torchvision(place):
    from PIL import Image

    names = (
        "b/z.jpg",
        "b/a/x.PNG",
        "b/a.b/y.bmp",
        "b/a/c/w.tif",
        "A/q.webp",
        "A/p.ppm",
        "a/1.jpeg",
        "a/10.png",
        "a/2.pgm",
    )
    for name in names:
        (place / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(place / "photos" / name)
    expected = torchvision.datasets.ImageFolder(str(place / "photos"))
    data = load_dataset(str(place / "photos"))

    assert [str(file) for file in data.files] == [file for file, _ in expected.samples]
    assert data.labels.tolist() == expected.targets


def test_files_that_are_no_pictures_are_counted_while_a_folder_is_searched(place, monkeypatch):
    monkeypatch.setattr("robustkit.limits.OTHER_FILES", 5)
    (place / "disk" / "etc").mkdir(parents=True)
    for number in range(7):
        (place / "disk" / "etc" / f"{number}.conf").touch()

    with pytest.raises(UserError, match="more than 5 other files"):
        load_dataset("disk")


@pytest.mark.parametrize("name", ["labels.npz", "net.pt", "photos"])
def test_what_may_not_be_read_says_so(place, monkeypatch, name):
    def denied(self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)

    assert not not_refused(
        [(name, lambda: load_dataset(name)), (name, lambda: load_model("net.py:make", weights=name))]
    )


def test_an_unreadable_cache_only_means_not_cached(place, monkeypatch):
    from robustkit.models import cache

    def denied(self: Path, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = cache.path_of("resnet18", "x" * 5000, {})
    monkeypatch.setattr(Path, "stat", denied)

    assert not cache.has(path)
    assert cache.metadata(path) is None


def test_a_long_name_of_a_data_set_still_names_a_file(place):
    from robustkit.models import cache

    path = cache.path_of("resnet18", "ü" * 5000, {"recipe": 1})
    cache.store(path, {"weight": torch.zeros(2)}, {"model": "resnet18", "dataset": "ü", "val_accuracy": "a lot"})

    assert [entry.val_accuracy for entry in cache.entries()] == [None]


@pytest.mark.parametrize(
    "name", ["hpu", "xla", "mps", "ipu", "meta", "cuda:99999999999999999999", "cpu:-1", "", "\x1b", "a" * 5000]
)
def test_a_device_that_is_not_there_is_refused_in_one_line(name):
    assert not not_refused([(name, lambda: chosen_device(name))])


def test_a_cached_download_that_is_another_file_is_refused_unread(place, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(place / "torch"))
    weights = torchvision.models.get_model_weights("resnet18").DEFAULT
    file = place / "torch" / "hub" / "checkpoints" / Path(weights.url).name
    file.parent.mkdir(parents=True)
    for name in ("code", "a dict in itself", "a number"):
        TORCH_FILES[name].write(file)

        with pytest.raises(UserError, match="is not the file that was published"):
            load_model("resnet18", weights="default")


def test_tensors_that_are_no_plain_images_are_refused_in_one_line():
    from robustkit.data import from_tensors

    x = torch.zeros(2, 1, 8, 8)

    assert not not_refused([
        ("labels", lambda: from_tensors(x, torch.tensor([0, 3 * 10**8]))),
        ("sparse", lambda: from_tensors(x.to_sparse(), torch.tensor([0, 1]))),
        ("meta", lambda: from_tensors(x.to("meta"), torch.tensor([0, 1]))),
        ("complex", lambda: from_tensors(x.to(torch.complex64), torch.tensor([0, 1]))),
        ("float8", lambda: from_tensors(x.to(torch.float8_e4m3fn), torch.tensor([0, 1]))),
        ("sparse labels", lambda: from_tensors(x, torch.tensor([0, 1]).to_sparse())),
        ("large", lambda: from_tensors(torch.zeros(1).expand(1, 3, 30000, 30000), torch.tensor([0]))),
    ])  # fmt: skip
