"""`--norm patch`, `--norm frame` and `--mask` on the command line."""

import numpy as np
import pandas as pd
from PIL import Image
from safetensors.torch import load_file

from robustkit import evaluate, load_mask, load_run
from robustkit.evidence.store import Store
from robustkit.evidence.witnesses import kept_witnesses
from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused
from tests.small import data, linear

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


def image_masks(count: int) -> np.ndarray:
    """One row of each image, another from image to image."""
    masks = np.zeros((count, 1, 8, 8), bool)
    masks[np.arange(count), 0, np.arange(count) % 3] = True
    return masks


def test_each_image_has_its_own_mask_and_verify_knows_it(robustkit, place):
    masks = image_masks(30)
    np.save(place / "masks.npy", masks)
    words = ("evaluate", "-q", *MODEL, *DATA, "-a", "pgd:steps=5", "--eps", "0.5", "--keep-adversarial", "--mask")
    assert robustkit(*words, "masks.npy", "-o", "run").status == 0
    run = load_run(place / "run")
    (threat,) = set(run.results.norm) - {"-"}
    store = Store(place / "run", reading=True)
    changed = {
        each.row.sample: np.flatnonzero((each.x != each.x_adv).any((0, 2)))
        for each in kept_witnesses(store, run.manifest["identity"]["models"][0]["name"])
    }
    store.close()

    assert threat.startswith("Linf-in-masks-")
    assert changed
    assert all(rows.tolist() == [sample % 3] for sample, rows in changed.items())
    assert "not checked" not in robustkit("verify", "run", "--mask", "masks.npy").out
    assert "give the mask with --mask" in robustkit("verify", "run").out
    np.save(place / "others.npy", np.roll(masks, 1, 0))
    other = robustkit("verify", "run", "--mask", "others.npy")
    assert other.status == 1
    assert f"and the mask of the run is {threat.removeprefix('Linf-in-')}" in other.out


def test_a_merged_run_is_verified_with_the_masks_of_both(robustkit, place):
    np.save(place / "masks.npy", image_masks(30))
    picture(place / "mask.png", MASK)
    picture(place / "other.png", 255 - MASK)
    words = ("evaluate", "-q", *MODEL, *DATA, "-a", "pgd:steps=3", "--eps", "0.5", "--keep-adversarial")
    for mask in ("masks.npy", "mask.png"):
        assert robustkit(*words, "--mask", mask, "-o", f"run-{mask}").status == 0
    assert robustkit("merge", "run-masks.npy", "run-mask.png", "-o", "both").status == 0
    verify = ("verify", "both", "--mask", "masks.npy")

    assert "not checked whether only masked pixels" in robustkit(*verify).out
    printed = robustkit(*verify, "--mask", "mask.png")
    assert printed.status == 0
    assert "not checked whether only masked pixels" not in printed.out
    assert robustkit(*verify, "--mask", "other.png").status == 1


def test_the_result_of_an_image_is_that_of_its_mask_alone():
    x, y = data(9)
    masks = image_masks(9)
    method = ("pgd:steps=5", "apgd:steps=5")
    together = evaluate(linear(), dataset=(x, y), attacks=method, eps=0.3, mask=masks, progress=False).samples
    for row in range(3):
        alone = evaluate(linear(), dataset=(x, y), attacks=method, eps=0.3, mask=masks[row], progress=False).samples
        names = ["sample", "attack", "verdict", "queries_to_break", "linf", "forwards"]
        mine, theirs = (each[each["sample"] % 3 == row][names].reset_index(drop=True) for each in (together, alone))

        assert mine.equals(theirs)


def test_a_folder_of_masks_has_the_names_of_the_images(robustkit, place):
    (place / "masks").mkdir()
    for number, mask in enumerate(image_masks(30)):
        picture(place / "masks" / f"{number}.png", mask[0].astype(np.uint8) * 255)
    np.save(place / "masks.npy", image_masks(30))
    words = ("evaluate", "-q", *MODEL, *DATA, "-a", "pgd:steps=2", "--eps", "0.3", "--mask")
    for name in ("masks", "masks.npy"):
        assert robustkit(*words, name, "-o", f"run-{name}").status == 0
    tables = [pd.read_csv(place / f"run-{name}" / "results.csv").norm.tolist() for name in ("masks", "masks.npy")]
    (place / "masks" / "7.png").unlink()

    assert tables[0] == tables[1]
    refused(robustkit(*words, "masks", "-o", "other"), "masks has no mask for 1 of 30 images; the first is 7.png")


def test_masks_of_other_data_are_one_line(robustkit, place):
    np.save(place / "few.npy", image_masks(7))
    np.save(place / "small.npy", image_masks(30)[:, :, :5])
    words = ("evaluate", "-q", *MODEL, *DATA, "-a", "pgd", "--eps", "0.1", "-o", "run", "--mask")

    refused(robustkit(*words, "few.npy"), "There are 7 masks and 30 images")
    refused(robustkit(*words, "small.npy"), "The mask has 5x8 pixels and the images have 8x8")


def test_a_run_is_not_continued_with_other_masks(robustkit, place):
    words = ("evaluate", "-q", *MODEL, *DATA, "-a", "pgd:steps=2", "--eps", "0.1", "-o", "run", "--mask", "masks.npy")
    np.save(place / "masks.npy", image_masks(30))
    assert robustkit(*words, "-n", "9").status == 0
    assert robustkit(*words).status == 0
    np.save(place / "masks.npy", image_masks(30)[::-1])

    assert robustkit(*words).status == 2


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
    refused(robustkit(*run, "nowhere.png"), "'nowhere.png' is not a mask")
    refused(robustkit(*run, ""), "'' is not a mask")  # and not the pictures of the current folder
    refused(robustkit(*run, "patch:1,2,3,9"), "ends at row 4 and column 11")


def pictures_with_masks(place) -> np.ndarray:
    (place / "pictures").mkdir()
    (place / "masks").mkdir()
    masks = image_masks(4)[:, 0]
    for number, (image, mask) in enumerate(zip(data(4)[0], masks, strict=True)):
        picture(place / "pictures" / f"p{number}.png", (image[0].numpy() * 255).round().astype(np.uint8))
        picture(place / "masks" / f"p{number}.png", mask.astype(np.uint8) * 255)
    return masks


def test_each_picture_has_the_mask_of_its_name(robustkit, place):
    masks = pictures_with_masks(place)
    words = ("attack", "pictures", "-q", *MODEL, *DATA, "-a", "pgd:steps=5", "--eps", "0.9", "--format", "safetensors")
    printed = robustkit(*words, "--mask", "masks", "-o", "out.safetensors")
    found = load_file(place / "out.safetensors")
    moved = (found["x_adv"] != found["x"]).any(1).numpy()

    assert printed.status == 0
    assert "in-masks-" in printed.out
    assert moved.any()
    assert not (moved & ~masks).any()


def test_masks_of_pictures_that_do_not_fit_are_refused_in_one_line(robustkit, place):
    pictures_with_masks(place)
    words = ("attack", "pictures", "-q", *MODEL, *DATA, "--eps", "0.9", "--mask", "masks")
    picture(place / "masks" / "p1.png", np.full((7, 8), 255, np.uint8))
    refused(robustkit(*words), "has 7x8 pixels and the images have 8x8")
    (place / "masks" / "p1.png").write_bytes(b"no picture")
    refused(robustkit(*words), "p1.png")
    (place / "masks" / "p1.png").unlink()
    refused(robustkit(*words), "has no mask for 1 of 4 images; the first is", "p1.png")
