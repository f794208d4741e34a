"""Attacks under a mask. That no attack changes another pixel is a check of the contract suite."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from robustkit.attacks import APGD, DDN, PGD, PatchSearch, Square
from robustkit.defenses.inner_attack.specification import inner_attack
from torch import Tensor, nn

from robustkit import UserError, attack, load_mask
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothing import Smoothing
from robustkit.engine import pool, pooled_query
from robustkit.primitives.mask import Mask, masked_name, unmasked
from tests.problems import problem

CROSS = np.zeros((8, 8), bool)
CROSS[3:5] = CROSS[:, 2] = True
SQUARE = np.zeros((8, 8), bool)
SQUARE[2:6, 1:6] = True


@pytest.mark.parametrize("method", [PGD(0.03, steps=4), Square(0.3, "L2", queries=20), APGD(0.8, "L1", steps=9)])
@pytest.mark.parametrize("part", [CROSS, SQUARE], ids=["cross", "rectangle"])
def test_a_masked_attack_is_the_attack_on_the_values_inside_alone(method, part):
    made, mask = problem("mlp", 2, 8, 8, count=1), Mask.of(part)

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = made.model[1].weight

        def forward(self, values: Tensor) -> Tensor:
            logits: Tensor = made.model(mask.placed(made.x.expand(len(values), -1, -1, -1), values))
            return logits

    masked = attack(made.model, made.x, made.y, replace(method, mask=mask))
    alone = attack(Inner().eval(), mask.inside(made.x), made.y, method)

    assert torch.equal(mask.inside(masked.x_adv), alone.x_adv)
    assert torch.equal(masked.queries, alone.queries)


def test_the_nearest_error_inside_a_mask_of_a_linear_model_is_found():
    made, part = problem("linear", 1, 8, 8, count=12, classes=2), torch.from_numpy(CROSS)
    x = 0.5 + (made.x - 0.5) / 100  # so that the walls of the box are far
    weight, y = made.model[1].weight.detach(), made.model(x).argmax(1)
    slope = ((weight[1] - weight[0]).reshape(8, 8) * part).norm()
    gap = (made.model(x)[:, 1] - made.model(x)[:, 0]).abs().detach()
    result = attack(made.model, x, y, DDN("minimum", "L2", steps=100, mask=Mask.of(CROSS)))

    assert result.success.all()
    assert torch.allclose((result.x_adv - x).flatten(1).norm(dim=1), gap / slope, rtol=0.02, atol=1e-5)


def test_masked_points_are_judged_in_the_callers_units():
    made = problem("cnn", 1, 8, 8, count=4)
    levels = (made.x * 255).round().double()

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = made.model

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.network((x / 255).float())
            return logits

    model = Scaled().eval()
    y = model(levels).argmax(1)
    result = attack(model, levels, y, PGD("8/255", steps=3, mask=Mask.of(CROSS)), bounds=(0, 255))
    moved = (result.x_adv != levels)[:, 0]

    assert moved.any()
    assert not (moved & ~torch.from_numpy(CROSS)).any()
    assert (result.x_adv - levels).abs().max() <= 8


def test_one_mask_has_one_name_whatever_it_is_given_as(tmp_path):
    from PIL import Image

    np.save(tmp_path / "mask.npy", CROSS.astype(np.float32))
    Image.fromarray(CROSS.astype(np.uint8) * 255).save(tmp_path / "mask.png")
    # numpy's types that torch does not compare or take, and torch's that numpy does not have
    types = [CROSS.astype(kind) for kind in ("<u2", ">f4", np.longdouble)] + [CROSS.copy()[::-1, ::-1][::-1, ::-1]]
    types += [torch.from_numpy(CROSS.copy()).bfloat16(), torch.from_numpy(CROSS.copy()).float().to_sparse()]
    given = [CROSS, CROSS[None].astype(int), torch.from_numpy(CROSS), *types]
    given += [tmp_path / "mask.npy", str(tmp_path / "mask.png")]
    masks = [load_mask(each) for each in given]

    assert len(set(masks)) == 1
    assert masks[0] != load_mask(SQUARE)
    assert [mask.source for mask in masks[-2:]] == ["mask.npy", "mask.png"]
    assert unmasked(masked_name("Linf", masks[0])) == "Linf"
    assert unmasked("Linf-in-mine") == "Linf-in-mine"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (np.zeros((8, 8)), "no pixel that may change"),
        ("patch:0,0,0,3", "no pixel that may change"),
        (np.ones(8), r"not the shape \[8\]"),
        (np.ones((3, 8, 8)), r"not the shape \[3, 8, 8\]"),
        (np.arange(64).reshape(8, 8), "has two values"),
        (-CROSS.astype(int), "has two values"),
        (np.where(CROSS, np.inf, 0), "has two values"),
        ([[1, 0], [1]], "cannot be read as one"),
        ("nowhere.png", "'nowhere.png' is not a mask; give an image or an .npy file that exists"),
        ("patch:1,2,3", "is not a mask"),
    ],
)
def test_what_is_no_mask_is_refused(given, sentence):
    with pytest.raises(UserError, match=sentence):
        load_mask(given)


def test_a_picture_that_does_not_say_which_pixels_are_white_is_refused(tmp_path):
    from PIL import Image

    ones, clear = CROSS.astype(np.uint8), np.full((8, 8, 4), 255, np.uint8)
    clear[..., 3] = ones * 255
    for name, pixels in (("ones", ones), ("clear", clear)):
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")

    with pytest.raises(UserError, match=r"no pixel that may change: its lightest pixel is 1 of 255"):
        load_mask(tmp_path / "ones.png")
    with pytest.raises(UserError, match=r"clear.png has transparent pixels"):
        load_mask(tmp_path / "clear.png")
    with pytest.raises(UserError, match=r"is not a mask; did you mean .*ones.png"):
        load_mask(tmp_path / "one.png")


def test_a_file_that_is_no_array_is_refused(tmp_path):
    (tmp_path / "mask.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match=r"mask.npy cannot be read as an array"):
        load_mask(tmp_path / "mask.npy")
    np.save(tmp_path / "mask.npy", np.array([["a", "b"]]))
    with pytest.raises(UserError, match="an array of numbers or truth values, not of <U1"):
        load_mask(tmp_path / "mask.npy")


@pytest.mark.parametrize(
    ("mask", "shape", "sentence"),
    [
        (SQUARE, (1, 7, 8), "has 8x8 pixels and the images have 7x8"),
        ("patch:4,4,4,5", (1, 8, 8), "ends at row 8 and column 9, and the images have 8x8"),
        (SQUARE, (12,), r"inputs of shape \[12\] have no height and width"),
    ],
)
def test_a_mask_that_does_not_fit_the_images_is_refused(mask, shape, sentence):
    made = problem("mlp", *shape)
    with pytest.raises(UserError, match=sentence):
        attack(made.model, made.x, made.y, PGD(0.1, mask=Mask.of(mask)))


def test_what_cannot_keep_to_a_mask_is_refused():
    made, mask = problem("mlp", 1, 8, 8), Mask.of(SQUARE)
    with pytest.raises(UserError, match="a patch has its own place; leave the mask out"):
        PatchSearch(2, "patch", mask=mask)
    smoothed = Classifier(made.model, smoothing=Smoothing(0.1, n=20, n0=10))
    with pytest.raises(UserError, match="on whole images; leave the mask out"):
        attack(smoothed, made.x, made.y, PGD(0.1, mask=mask))
    with pytest.raises(UserError, match="Training has no masks"):
        inner_attack(PGD(0.1, mask=mask), "Linf", 0.1)
    with pytest.raises(UserError, match=r"mask is not str; give robustkit.load_mask"):
        PGD(0.1, mask="mask.png")


@pytest.mark.parametrize("method", [PGD(0.1, steps=3), "square:queries=5"], ids=["object", "text"])
def test_each_image_keeps_to_its_own_mask_with_the_result_that_it_has_alone(method, tmp_path):
    made = problem("cnn", 1, 8, 8, count=4)
    masks = np.stack([CROSS, SQUARE, CROSS, np.roll(CROSS, 1)])
    np.save(tmp_path / "masks.npy", masks[:, None])
    radius = {} if isinstance(method, PGD) else {"eps": 0.1}
    result = attack(made.model, made.x, made.y, method, mask=masks, **radius)
    read = attack(made.model, made.x, made.y, method, mask=tmp_path / "masks.npy", **radius)

    assert torch.equal(result.x_adv, read.x_adv)
    for row in range(4):
        one = slice(row, row + 1)
        alone = attack(made.model, made.x[one], made.y[one], method, mask=masks[row], numbers=[row], **radius)
        assert not ((result.x_adv != made.x)[row, 0].numpy() & ~masks[row]).any()
        assert torch.equal(result.x_adv[one], alone.x_adv)
        assert torch.equal(result.forwards[one], alone.forwards)


# Queries guessed ahead, gradients of several classes, bisection, an objective with a phase, restarts, labels only.
# Queries without gradients, or with that of one class.
SEVERAL = ["square:queries=12", "deepfool:steps=3", "pgd:steps=2,radii=3", "gama:steps=4", "boundary:queries=12",
           "vfga:steps=2", "superdeepfool:steps=3"]  # fmt: skip
NORM = {"boundary": "L2", "vfga": "L0", "superdeepfool": "L2"}


@pytest.mark.parametrize("method", SEVERAL)
def test_a_batch_of_rows_with_different_masks_has_the_results_of_each_mask_alone(method):
    made = problem("mlp", 1, 8, 8, count=4)
    masks = np.stack([CROSS, SQUARE, CROSS, np.roll(CROSS, 2) | SQUARE])
    name = method.split(":")[0]
    how = {"norm": NORM.get(name, "Linf"), "eps": "minimum" if name in (*NORM, "deepfool", "pgd") else 0.2}
    together = [attack(made.model, made.x, made.y, method, mask=masks, batch_size=size, **how) for size in (64, 3)]

    for row in (1, 3):
        one = slice(row, row + 1)
        alone = attack(made.model, made.x[one], made.y[one], method, mask=masks[row], numbers=[row], **how)
        for each in together:
            for name in ("x_adv", "success", "queries", "forwards", "backwards"):
                assert torch.equal(getattr(each, name)[one], getattr(alone, name)), name


@pytest.mark.parametrize("most", [1, 2, 5])
def test_out_of_memory_halves_a_batch_of_rows_with_different_masks_and_changes_no_result(monkeypatch, most):
    made = problem("mlp", 1, 8, 8, count=9)
    masks = np.stack([CROSS, SQUARE, np.roll(CROSS, 2)] * 3)
    reference = attack(made.model, made.x, made.y, PGD(0.1, steps=3), mask=masks)
    sizes = no_more_rows_than(most, monkeypatch)
    result = attack(made.model, made.x, made.y, PGD(0.1, steps=3), mask=masks)

    assert any(size > most for size in sizes)
    for name in ("x_adv", "success", "queries", "forwards", "backwards"):
        assert torch.equal(getattr(result, name), getattr(reference, name)), name


def test_masks_whose_rows_never_fit_into_memory_are_an_error_and_not_a_loop(monkeypatch):
    made = problem("mlp", 1, 8, 8, count=4)
    no_more_rows_than(0, monkeypatch)
    with pytest.raises(UserError, match="does not fit into memory even for a single image"):
        attack(made.model, made.x, made.y, PGD(0.1, steps=3), mask=np.stack([CROSS, SQUARE, CROSS, SQUARE]))


def no_more_rows_than(most: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let queries of more rows run out of memory; the sizes of all that are asked, without rows that fill a batch."""
    answered, sizes = pooled_query.answered_together, []

    def answered_if_it_fits(session, parts, slots):
        sizes.append(sum(len(part.rows) for part in parts))
        if sizes[-1] > most:
            raise torch.OutOfMemoryError("too many rows")
        return answered(session, parts, slots)

    monkeypatch.setattr(pool, "answered_together", answered_if_it_fits)
    return sizes


def test_rows_with_different_masks_pass_the_network_together():
    made, batches = problem("mlp", 1, 8, 8, count=16), []
    masks = np.zeros((16, 8, 8), bool)
    for row in range(16):
        masks[row, : row % 4 + 1, : row // 4 + 1] = True
    model = nn.Sequential(made.model).eval()
    model.register_forward_hook(lambda module, given, output: batches.append(len(output)))
    attack(Classifier(model, fold=False), made.x, made.y, PGD(1e-6, steps=20), mask=masks)

    assert len(batches) < 160  # 16 times 20 where each mask has a batch of its own


@pytest.mark.parametrize(
    ("masks", "sentence"),
    [
        (np.stack([CROSS] * 3), "There are 3 masks and 4 images; give one for each, or one"),
        (
            np.stack([CROSS, SQUARE, CROSS & False, CROSS]),
            "Mask 2, counted from 0: The mask has no pixel",
        ),
        (np.ones((4, 7, 8)), "has 7x8 pixels and the images have 8x8"),
        (np.ones((4, 2, 8, 8)), r"not the shape \[4, 2, 8, 8\]"),
    ],
)
def test_masks_of_images_that_do_not_fit_are_refused(masks, sentence):
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.raises(UserError, match=sentence):
        attack(made.model, made.x, made.y, PGD(0.1), mask=masks)


def test_a_method_with_a_mask_takes_no_second_one():
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.raises(UserError, match="PGD has a mask of its own; leave out mask="):
        attack(made.model, made.x, made.y, PGD(0.1, mask=Mask.of(CROSS)), mask=SQUARE)
