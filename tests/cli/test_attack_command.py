"""`robustkit attack`: what it writes is what it says, read back from the files, and nothing else is touched."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from robustkit.adversarial_examples import picture_run
from robustkit.adversarial_examples.comparison import Titles, write_comparison
from robustkit.models import pretrained
from tests.black_box.loopback import label as label_alone
from tests.black_box.loopback import pixels_of, probabilities, serving
from tests.cli.conftest import DATA, MODEL, without
from tests.cli.test_bad_input import refused
from tests.small import data, linear

RUN = ("attack", "-q", *MODEL, "--out", "made")


def draw(path: Path, pixels: torch.Tensor, **settings: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((pixels[0] * 255).round().numpy().astype(np.uint8)).save(path, format="PNG", **settings)


def read(path: Path) -> torch.Tensor:
    with Image.open(path) as picture:
        return torch.from_numpy(np.asarray(picture).astype(np.int64))


def classes_of(levels: torch.Tensor) -> list[int]:
    return linear().eval()(levels.reshape(-1, 1, 8, 8).float() / 255).argmax(1).tolist()


@pytest.fixture(autouse=True)
def blank(monkeypatch) -> None:
    """Comparisons are empty files, unless a test wants them `painted`: to draw them takes longest."""
    monkeypatch.setattr(picture_run, "write_comparison", lambda clean, kept, titles, path: path.touch())


@pytest.fixture
def painted(blank, monkeypatch) -> None:
    monkeypatch.setattr(picture_run, "write_comparison", write_comparison)


@pytest.fixture
def pictures(place) -> list[Path]:
    """Six gray pictures of digits in the folder `photos`."""
    return drawn(place, 6)


def drawn(place: Path, count: int) -> list[Path]:
    paths = [place / "photos" / f"{number}.png" for number in range(count)]
    for path, pixels in zip(paths, data(count)[0], strict=True):
        draw(path, pixels)
    return paths


@pytest.mark.parametrize(
    ("norm", "eps", "within"),
    [
        ("Linf", "0.1", lambda change: change.abs().max() <= 25),
        ("L2", "1", lambda change: (change**2).sum() <= 255**2),
        ("L1", "5", lambda change: change.abs().sum() <= 5 * 255),
        ("L0", "12", lambda change: (change != 0).sum() <= 12),
    ],
)
def test_each_picture_that_is_written_is_in_the_ball_and_another_class(norm, eps, within, pictures, robustkit, place):
    printed = robustkit(*RUN, "photos", "--norm", norm, "--eps", eps)
    table = pd.read_csv(place / "made" / "results.csv", dtype={"label": str, "prediction": str})
    made = table[table.outcome == "broken"]

    assert printed.status == 0
    assert len(table) == 6
    assert len(made) >= 3
    assert sorted(made.file) == sorted(path.name for path in (place / "made").glob("?.png"))
    for row in made.itertuples():
        levels, clean = read(place / "made" / row.file), read(Path(row.source))
        assert within(levels - clean)
        assert classes_of(levels) == [int(row.prediction)] != [int(row.label)]


def test_the_label_is_the_prediction_unless_it_is_given(pictures, robustkit, place):
    printed = robustkit(*RUN, "photos", "--eps", "0.1")
    table = pd.read_csv(place / "made" / "results.csv")

    assert "label: predicted" in printed.out
    assert table.label.tolist() == [classes_of(read(path))[0] for path in pictures]


def test_sub_folders_are_labels(robustkit, place):
    x, y = data(10)
    for number, (pixels, label) in enumerate(zip(x, y.tolist(), strict=True)):
        draw(place / "sorted" / str(label) / f"{number}.png", pixels)
    printed = robustkit(*RUN, "sorted", "--eps", "0.1")
    table = pd.read_csv(place / "made" / "results.csv")

    assert "label: given" in printed.out
    assert table.label.tolist() == [int(Path(source).parent.name) for source in table.source]


def test_the_target_is_reached(pictures, robustkit, place):
    robustkit(*RUN, "photos", "--eps", "0.3", "--target", "3")
    made = sorted((place / "made").glob("?.png"))

    assert len(made) > 3
    assert {label for path in made for label in classes_of(read(path))} == {3}


def test_the_nearest_error_is_found_without_a_radius(pictures, robustkit, place):
    robustkit(*RUN, "photos", "--eps", "minimum", "-a", "fab:steps=20", "--norm", "L2")
    table = pd.read_csv(place / "made" / "results.csv")
    weights, biases = linear()[-1].weight.double(), linear()[-1].bias.double()
    for row in table.itertuples():
        x = read(Path(row.source)).double().flatten() / 255
        logits, wrong = weights @ x + biases, torch.arange(10) != row.label
        distances = (logits[row.label] - logits)[wrong] / (weights[row.label] - weights)[wrong].norm(dim=1)
        assert distances.min() <= row.distance <= 1.3 * distances.min() + 4 / 255  # rounding of 64 values


def test_names_from_two_folders_do_not_collide(pictures, painted, robustkit, place):
    draw(place / "more" / "0.png", data(10)[0][0])
    draw(place / "more" / "0.comparison.png", data(10)[0][0])
    robustkit(*RUN, "photos/0.png", "more/0.png", "more/0.comparison.png", "-a", "fgsm", "--eps", "0.2")
    table = pd.read_csv(place / "made" / "results.csv")

    assert table.outcome.tolist() == ["broken"] * 3
    assert len({*table.file}) == 3
    assert len([*(place / "made").iterdir()]) == 7
    assert len({read(path).shape for path in (place / "made").glob("*.png")}) == 2  # one size of all comparisons


def test_arrays_keep_their_floats(robustkit, place):
    words = ("attack", "-q", *MODEL, "digits.npz", "--eps", "0.1", "--out", "made.safetensors")
    printed = robustkit(*words)
    made, (x, y) = load_file(place / "made.safetensors"), data(30)

    assert printed.status == 0
    assert torch.equal(made["x"], x)
    assert torch.equal(made["y"], y)
    assert (made["x_adv"].double() - x.double()).abs().max() <= 0.1
    assert torch.equal(made["prediction"], linear().eval()(made["x_adv"]).argmax(1))
    assert made["success"].sum() > 10
    assert (made["prediction"] != y)[made["success"]].all()


def test_arrays_without_labels_get_the_prediction(robustkit, place):
    np.savez(place / "plain.npz", x=data(5)[0].numpy())
    robustkit("attack", "-q", *MODEL, "plain.npz", "--eps", "0.1", "--out", "made.safetensors")

    assert torch.equal(load_file(place / "made.safetensors")["y"], linear().eval()(data(5)[0]).argmax(1))


def test_a_disk_that_is_full_is_no_bug(robustkit, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    printed = robustkit("attack", "-q", *MODEL, "digits.npz", "--eps", "0.1", "--out", "made.safetensors")

    assert (printed.status, printed.err.count("\n")) == (2, 1)
    assert "No space left on device); give another --out." in printed.err


def test_pictures_are_resized_to_the_size_of_the_data(robustkit, place):
    large = nn.functional.interpolate(data(1)[0], scale_factor=4)[0]
    draw(place / "large.png", large)
    printed = robustkit(*RUN, *DATA, "large.png", "--eps", "0.2")

    assert "size 8x8" in printed.out
    assert read(place / "made" / "large.png").shape == (8, 8)


def test_published_weights_bring_their_size_and_class_names(painted, robustkit, place, monkeypatch):
    class Colours(nn.Module):
        """Class 1 (goldfish) for red pictures, class 113 (snail) for blue ones."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            red, _, blue = x.mean((2, 3)).unbind(1)
            return nn.functional.one_hot(torch.tensor(1), 1000) * red[:, None] * 50 + blue[:, None] * 50 * (
                nn.functional.one_hot(torch.tensor(113), 1000)
            )

    halves = (0.5, 0.5, 0.5)
    published = pretrained.Pretrained(Colours(), "V1", 1000, 224, pretrained.Normalisation(halves, halves))
    monkeypatch.setattr(pretrained, "torchvision_pretrained", lambda name, weights: published)
    Image.new("RGB", (300, 240), (200, 90, 203)).save(place / "snail.png")
    words = ("snail.png", "--label", "snail", "--target", "Goldfish", "--eps", "8/255", "-a", "pgd:steps=3")
    printed = robustkit("attack", "-q", "-m", "resnet18", *words, "--out", "made")

    assert "snail.png: snail" in printed.out
    assert "-> goldfish" in printed.out
    assert "size 224x224" in printed.out
    assert read(place / "made" / "snail.png").shape == (224, 224, 3)
    assert read(place / "made" / "snail.comparison.png").dim() == 3


@pytest.mark.parametrize("mode", ["P", "LA", "RGBA", "I;16", "1"])
def test_every_kind_of_png_is_read(mode, robustkit, place):
    gray = Image.fromarray((data(1)[0][0, 0] * 255).round().numpy().astype(np.uint8))
    deep = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    (deep if mode == "I;16" else gray.convert(mode)).save(place / "kind.png")
    printed = robustkit(*RUN, "kind.png", "--eps", "0.3")
    seen = gray.convert("1").convert("L") if mode == "1" else gray
    expected = classes_of(torch.from_numpy(np.asarray(seen).astype(np.int64)))

    assert printed.status == 0
    assert pd.read_csv(place / "made" / "results.csv").label.tolist() == expected


@pytest.mark.skipif(os.name == "nt", reason="such names do not exist there")
@pytest.mark.parametrize("name", ["-rf", "a\nb\x1b[31m", "=cmd()", "\udcff", ".png", "é" * 120, "résumé"])
def test_odd_names_are_harmless(name, pictures, robustkit, place):
    (place / "photos" / "0.png").rename(place / f"{name}.png")
    printed = robustkit(*RUN, "--eps", "0.2", "--", f"{name}.png")

    assert printed.status == 0
    assert "\x1b" not in printed.out
    assert len([*(place / "made").glob("*.png")]) == 2
    assert not pd.read_csv(place / "made" / "results.csv").source[0].startswith(("=", "-"))


GRAY = """
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(128, 10))
"""
HOSTILE = {
    "no input": ((), ["no image"]),
    "a missing file": (("photo/0.png",), ["photo"]),
    "no picture": (("net.py",), ["net.py", "format"]),
    "a truncated picture": (("cut.png",), ["cut.png", "decoded"]),
    "an empty folder": (("empty",), ["empty"]),
    "an unknown class": (("photos", "--label", "snail"), ["names of the classes are not known"]),
    "a class too high": (("photos", "--target", "10"), ["10", "numbered from 0"]),
    "an ensemble": (("photos", "-a", "default"), ["ensemble"]),
    "a radius below one level": (("photos", "--eps", "0.5/255", "--norm", "Linf"), ["0.5/255"]),
    "a radius that no level has": (("photos", "--eps", "1/300"), ["1/255", "safetensors"]),
    "eps 8": (("photos", "--eps", "8"), ["8/255"]),
    "two kinds of input": (("photos", "digits.npz"), ["arrays"]),
    "png of arrays": (("digits.npz", "--format", "png"), ["png"]),
    "floats in a folder": (("photos", "--format", "safetensors"), ["made.safetensors"]),
    "pictures of another size than a gray model's": (
        ("-m", "gray.py:net", "large.png"),
        ["(1x32x32)", "mat1 and mat2", "resize the images"],
    ),
    "gray pictures of no data": (("photos", "--gray"), ["--gray is about the images of --dataset"]),
    "gray images of published data": (("photos", "-d", "cifar10", "--gray"), ["Only image files", "cifar10"]),
    "an animated PNG": (("moving.png",), ["moving.png has several frames or pages"]),
    "a TIFF of two pages": (("pages.tif",), ["pages.tif has several frames or pages"]),
    "pictures of two sizes": (("photos/0.png", "wide.png"), ["differ in size"]),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_cannot_be_done_is_one_line_and_writes_nothing(case, pictures, robustkit, place):
    words, expected = HOSTILE[case]
    (place / "empty").mkdir()
    draw(place / "wide.png", torch.zeros(1, 8, 9))
    draw(place / "large.png", torch.zeros(1, 32, 32))
    with Image.open(pictures[0]) as first, Image.open(pictures[1]) as second:
        for name in ("moving.png", "pages.tif"):
            first.save(place / name, save_all=True, append_images=[second])
    (place / "gray.py").write_text(GRAY)
    (place / "cut.png").write_bytes(pictures[0].read_bytes()[:40])
    before = sorted(place.rglob("*"))

    refused(robustkit(*(without(RUN, "-m") if "-m" in words else RUN), *words), *expected)
    assert sorted(path for path in place.rglob("*") if "__pycache__" not in path.parts) == before


def test_a_gray_network_has_a_folder_of_pictures_as_its_data(robustkit, place):
    for path, label in zip(drawn(place, 4), "0123", strict=True):
        (place / "sorted" / label).mkdir(parents=True)
        path.rename(place / "sorted" / label / path.name)
    (place / "gray.py").write_text(GRAY)
    words = ("attack", "sorted", "-m", "gray.py:net", "-d", "sorted", "--eps", "0.5")

    refused(robustkit(*words), "channels", "read the images with --gray")
    assert robustkit(*words, "--gray").status == 0


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_an_existing_output_is_refused(kind, pictures, robustkit, place):
    made = place / "made"
    {"folder": made.mkdir, "file": made.touch, "link": lambda: made.symlink_to("nowhere")}[kind]()

    refused(robustkit(*RUN, "photos", "--eps", "0.1"), "made", "not replaced")


def test_an_interruption_leaves_nothing(pictures, robustkit, place, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(picture_run, "write_comparison", interrupt)
    before = sorted(place.rglob("*"))
    printed = robustkit(*RUN, "photos", "--eps", "0.1")

    assert printed.status == 130
    assert sorted(path for path in place.rglob("*") if "__pycache__" not in path.parts) == before


def test_a_picture_that_rounding_rescues_nothing_of_is_not_a_success(pictures, robustkit, place):
    (place / "exact.py").write_text(
        "from tests.cli.test_attack_command import OnlyFloats\n\ndef make():\n    return OnlyFloats()\n"
    )
    printed = robustkit("attack", "-q", "-m", "exact.py:make", "photos/0.png", "--eps", "0.1", "--out", "made")

    assert "lost in rounding to 8 bits" in printed.out
    assert [path.name for path in (place / "made").iterdir()] == ["results.csv"]


def test_a_picture_is_attacked_again_when_rounding_loses_its_error(robustkit, place):
    drawn(place, 10)
    (place / "mostly.py").write_text(
        "from tests.cli.test_attack_command import MostlyFloats\n\ndef make():\n    return MostlyFloats()\n"
    )
    run = ("attack", "-q", "-m", "mostly.py:make", "-a", "noise", "photos", "--eps", "0.1", "--out")
    robustkit(*run, "made")

    # A first error that outlives rounding is a coin flip: ten of ten pictures have one probability in a thousand.
    assert errors(place / "made") == 10


def errors(made: Path) -> int:
    return int((pd.read_csv(made / "results.csv").outcome == "broken").sum())


class MostlyFloats(nn.Module):
    """Class 0 for pictures of 8 bits that are no brighter than the clean one, class 1 for all other tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = x * 255
        off = (levels - levels.round()).abs().amax((1, 2, 3))
        last = x[:, :, -1, 0].amax(1)
        return torch.stack([torch.full_like(off, 0.01), off.maximum(last)], 1)


class OnlyFloats(nn.Module):
    """Class 0 for every picture of 8 bits, class 1 for all other tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = x * 255
        off = (levels - levels.round()).abs().amax((1, 2, 3))
        return torch.stack([torch.full_like(off, 0.01), off], 1)


def test_an_image_that_is_wrong_already_is_not_attacked(pictures, robustkit, place):
    wrong = (classes_of(read(pictures[0]))[0] + 1) % 10
    printed = robustkit(*RUN, "photos/0.png", "--eps", "0.3", "--label", str(wrong))

    assert "clean-wrong: " in printed.out
    assert pd.read_csv(place / "made" / "results.csv").queries.tolist() == [0]


def test_rotated_pictures_are_written_as_they_were_verified(pictures, robustkit, place):
    printed = robustkit(*RUN, "photos", "-a", "grid:angles=7", "--norm", "rotation", "--eps", "45")
    table = pd.read_csv(place / "made" / "results.csv", dtype={"prediction": str})
    made = table[table.outcome == "broken"]

    assert printed.status == 0
    assert len(made) > 3
    assert set(made.distance) <= {15.0, 30.0, 45.0}  # degrees
    for row in made.itertuples():
        assert classes_of(read(place / "made" / row.file)) == [int(row.prediction)]


def test_a_name_with_a_line_break_prints_one_line(pictures, robustkit, place):
    (place / "photos" / "0.png").rename(place / "photos" / "a\n5 of 5 broken.png")
    printed = robustkit(*RUN, "photos", "--eps", "0.1")

    assert not any(line.startswith("5 of 5 broken") for line in printed.out.splitlines())


@pytest.mark.filterwarnings("ignore:The model seems to return probabilities")
@pytest.mark.filterwarnings("ignore:.*exactly zero")
def test_probabilities_are_printed_as_they_are(pictures, robustkit, place):
    (place / "sure.py").write_text(
        "from tests.networks import Changed\nfrom tests.small import linear\n\n"
        "def make():\n    return Changed(linear(), lambda logits: (20 * logits).softmax(1))\n"
    )
    robustkit("attack", "-q", "-m", "sure.py:make", "photos", "--eps", "0.01", "--out", "made")
    confidence = pd.read_csv(place / "made" / "results.csv").confidence

    # A second softmax of ten probabilities is below 0.24.
    assert confidence.max() > 0.5


LABELS = """
import robustkit
import torch
from tests.small import linear

network = linear().eval()
model = robustkit.BlackBox(lambda pixels: network(torch.from_numpy(pixels)).argmax(1), returns="labels", num_classes=10)
"""


def says_no_probability(printed, made: Path, titles: list[Titles]) -> None:
    table = pd.read_csv(made / "results.csv", dtype={"label": str, "prediction": str})

    assert printed.status == 0
    assert "%" not in printed.out
    assert table.confidence.isna().all()
    assert table.prediction_confidence.isna().all()
    broken = table[table.outcome == "broken"]
    assert not broken.empty
    assert [title[:2] for title in titles] == [*zip(broken.label, broken.prediction, strict=True)]


@pytest.fixture
def titles(monkeypatch) -> list[Titles]:
    """What stands above the comparisons."""
    drawn_titles: list[Titles] = []
    monkeypatch.setattr(picture_run, "write_comparison", lambda clean, kept, titles, path: drawn_titles.append(titles))
    return drawn_titles


def test_a_model_of_labels_gets_no_probability(pictures, robustkit, place, titles):
    (place / "labels.py").write_text(LABELS)
    label = str(classes_of(read(pictures[0]))[0])
    printed = robustkit(
        "attack", "-q", "-m", "labels.py:model", "photos", "-a", "rays:queries=20", "--norm", "Linf", "--eps", "0.3",
        "--label", label, "--out", "made",
    )  # fmt: skip

    assert "clean-wrong: " in printed.out
    says_no_probability(printed, place / "made", titles)


def test_a_server_of_labels_gets_no_probability(pictures, robustkit, place, titles, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(label_alone) as server:
        printed = robustkit(
            "attack", "-q", "-m", server.url, "--num-classes", "10", "photos", "-a", "rays:queries=20",
            "--eps", "0.3", "--out", "made",
        )  # fmt: skip

    says_no_probability(printed, place / "made", titles)


SQUARE = ("photos", "-a", "square:queries=60", "--eps", "0.4", "--out", "made")


def test_a_server_of_scores_gets_no_probability(pictures, robustkit, place, titles, monkeypatch):
    """Nobody said that its scores are logits, and `evaluate` states no probability either."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        printed = robustkit("attack", "-q", "-m", server.url, "--num-classes", "10", *SQUARE)

    says_no_probability(printed, place / "made", titles)


def test_the_probabilities_of_a_server_are_stated(pictures, robustkit, place, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(probabilities) as server:
        robustkit("attack", "-q", "-m", server.url, "--num-classes", "10", *SQUARE)
    clean = [linear()(pixels_of(file.read_bytes())).softmax(1).max().item() for file in sorted(pictures)]

    assert pd.read_csv(place / "made" / "results.csv").confidence.tolist() == pytest.approx(clean, abs=1e-5)


def test_weights_of_float64_are_attacked(pictures, robustkit, place):
    (place / "double.py").write_text("from tests.small import linear\n\ndef make():\n    return linear().double()\n")
    printed = robustkit("attack", "-q", "-m", "double.py:make", "photos", "--eps", "0.1", "--out", "made")

    assert printed.status == 0


def test_a_server_gets_gray_pictures_gray(pictures, robustkit, place, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    limits = ("--rate", "1e5", "--parallel", "2", "--timeout", "9")
    with serving() as server:
        printed = robustkit(
            "attack", "-q", "-m", server.url, "--num-classes", "10", "photos", "-a", "square:queries=60",
            "--eps", "0.4", *limits, "--out", "made",
        )  # fmt: skip
        shapes = {pixels_of(each.body).shape for each in server.log}
    made = pd.read_csv(place / "made" / "results.csv")

    assert printed.status == 0
    assert shapes == {(1, 1, 8, 8)}
    assert (made.outcome == "broken").any()


def test_the_requests_of_an_attack_are_limited(pictures, robustkit, place, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        command = ("attack", "-q", "-m", server.url, "--num-classes", "10", "photos", "-a", "square", "--eps", "0.2")
        refused(robustkit(*command, "--max-queries", "15", "--out", "made"), "allow more with --max-queries")

        assert len(server.log) == 15
    assert not (place / "made").exists()


def test_limits_of_requests_are_refused_without_a_server(pictures, robustkit):
    refused(robustkit(*RUN, "photos", "--rate", "3"), "no model is on a server")
