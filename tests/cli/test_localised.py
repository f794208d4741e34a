"""`--norm patch`, `--norm frame` and `--mask` on the command line."""

import numpy as np
import pandas as pd
from PIL import Image
from safetensors.torch import load_file

from robustkit import load_mask
from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused
from tests.small import data

MASK = np.zeros((8, 8), np.uint8)
MASK[2:6, 3] = MASK[4] = 255


def picture(path, pixels) -> None:
    Image.fromarray(pixels).save(path)


def test_a_mask_is_read_from_a_picture_and_named_everywhere(robustkit, place):
    picture(place / "mask.png", MASK)
    label = f"Linf-in-{load_mask(MASK > 0).label}"
    printed = robustkit(
        "evaluate", "-q", *MODEL, *DATA, "-a", "pgd:steps=3", "--eps", "0.1", "--mask", "mask.png", "-o", "run"
    )

    assert printed.status == 0
    assert f"{label} 0.1" in printed.out
    assert set(pd.read_csv(place / "run" / "results.csv").norm) == {"-", label}
    assert label in (place / "run" / "report.html").read_text(encoding="utf-8")


def test_pictures_are_attacked_in_a_patch_and_under_a_mask(robustkit, place):
    picture(place / "mask.png", MASK)
    for number, pixels in enumerate(data(4)[0]):
        picture(place / f"{number}.png", (pixels[0] * 255).round().numpy().astype(np.uint8))
    names = [f"{number}.png" for number in range(4)]
    for out, options in (
        ("patched", ("-a", "patch_search:steps=20", "--norm", "patch", "--eps", "3")),
        ("masked", ("-a", "pgd:steps=9", "--eps", "0.6", "--mask", "mask.png")),
    ):
        assert robustkit("attack", "-q", *MODEL, *names, *options, "--out", out).status == 0
        made = sorted((place / out).glob("?.png"))
        assert made
        for path in made:
            changed = np.asarray(Image.open(path)) != np.asarray(Image.open(place / path.name))
            rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
            if out == "patched":
                assert max(np.ptp(rows), np.ptp(columns)) < 3
            else:
                assert not (changed & (MASK == 0)).any()
    table = pd.read_csv(place / "patched" / "results.csv")

    assert set(table.norm) == {"patch"}
    assert table.distance.dropna().le(3).all()
    assert set(pd.read_csv(place / "masked" / "results.csv").norm) == {f"Linf-in-{load_mask(MASK > 0).label}"}


def test_arrays_are_attacked_in_a_frame(robustkit, place):
    printed = robustkit(
        "attack", "-q", *MODEL, "digits.npz", "-a", "sparse_rs:queries=20", "--norm", "frame", "--eps", "1",
        "--out", "made.safetensors",
    )  # fmt: skip
    content = load_file(place / "made.safetensors")

    assert printed.status == 0
    assert content["distance"][content["success"]].eq(1).all()
    assert (content["x"] == content["x_adv"])[..., 1:-1, 1:-1].all()


def test_what_is_no_mask_is_one_line_and_status_2(robustkit, place):
    picture(place / "small.png", MASK[1:])
    picture(place / "black.png", MASK * 0)
    (place / "text.png").write_text("no picture")
    run = ("evaluate", "-q", *MODEL, *DATA, "-a", "pgd", "--eps", "0.1", "--mask")

    refused(robustkit(*run, "small.png"), "7x8 pixels and the images have 8x8")
    refused(robustkit(*run, "black.png"), "no pixel that may change")
    refused(robustkit(*run, "text.png"), "text.png", "cannot be decoded")
    refused(robustkit(*run, "nowhere.png"), "'nowhere.png' is no mask")
    refused(robustkit(*run, "patch:1,2,3,9"), "ends at row 4 and column 11")
