"""Adversarial examples that something else made: judged as any attack's last point, inside the ball."""

import warnings

import numpy as np
import pytest
import torch
from robustkit.attacks import FGSM, PGD
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.checklist import checklist
from robustkit.reports.evaluation.html import page
from safetensors.torch import save_file
from torch import nn

import robustkit
from robustkit import UserError, evaluate, load_examples
from robustkit.data import given_dataset
from robustkit.data.eight_bits import EightBitImages
from tests.small import accuracy, broken, cnn, csv, data, evaluated, linear

EPS = "0.1"


@pytest.fixture
def made():
    """Images, labels, and what PGD made of them."""
    x, y = data()
    return x, y, robustkit.attack(linear(), x, y, PGD(eps=EPS, steps=10))


def as_file(path, **arrays):
    np.savez(path, **{name: values.numpy() for name, values in arrays.items()})
    return str(path)


def test_the_examples_of_an_attack_break_what_the_attack_broke(made, tmp_path):
    x, y, pgd = made
    file = as_file(tmp_path / "adv.npz", x=x, x_adv=pgd.x_adv)

    judged = robustkit.attack(linear(), x, y, load_examples(file), eps=EPS)
    run = evaluate(linear(), dataset=(x, y), attacks=["fgsm", file], eps=EPS)

    assert 0 < int(pgd.success.sum()) < int(pgd.clean_correct.sum())
    assert torch.equal(judged.success, pgd.success)
    assert torch.equal(judged.x_adv[pgd.success], pgd.x_adv[pgd.success])
    assert not judged.backwards.any()
    assert broken(run, "adv.npz") == set(pgd.success.nonzero().flatten().tolist())
    assert accuracy(run, "worst-case") <= min(accuracy(run, "fgsm"), accuracy(run, "adv.npz"))
    assert not run.manifest["warnings"]


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1", "L0"])
def test_an_example_outside_of_the_ball_is_moved_to_its_border_and_that_is_said(made, norm):
    x, y, _ = made
    # Each value twice as far as allowed: in each norm the point half the way lies on the border.
    eps = {"Linf": 0.05, "L2": 0.4, "L1": 3.2, "L0": 32}[norm]
    change = torch.where(x > 0.5, -0.1, 0.1)
    examples = load_examples((x, x + change))

    with pytest.warns(UserWarning, match=rf"30 of the 30 examples in examples lie outside of {norm} {eps}"):
        judged = robustkit.attack(linear(), x, y, examples, eps=eps, norm=norm)

    moved = (judged.x_adv - x)[judged.clean_correct].flatten(1)
    length = (moved != 0).sum(1) if norm == "L0" else moved.norm(p=float(norm[1:].replace("inf", "inf")), dim=1)
    assert length.double().numpy() == pytest.approx(eps, rel=1e-5)
    if norm != "L0":
        assert torch.allclose(judged.x_adv[judged.clean_correct], (x + change / 2)[judged.clean_correct], atol=1e-5)


def test_images_without_an_example_are_counted_and_stay_as_they_are(made):
    x, y, pgd = made
    examples = load_examples((x[:10], pgd.x_adv[:10]), name="ten")

    run = evaluate(linear(), dataset=(x, y), attacks=examples, eps=EPS)

    assert broken(run, "ten") == {number for number in range(10) if pgd.success[number]}
    (said,) = run.manifest["warnings"]
    assert said == "Not every image has an example in ten; those without one count as not broken by it."


@pytest.mark.parametrize(
    "stored",
    [
        lambda x: (x * 255).round().byte(),
        lambda x: (x * 255).byte(),
        lambda x: x.half().float(),
        lambda x: x.bfloat16(),
    ],
    ids=["rounded bytes", "truncated bytes", "half", "bfloat16"],
)
def test_images_are_found_again_that_were_stored_with_fewer_bits(made, stored):
    """Digits, 16 levels, are not among the 256 of a byte: none of 30 was found."""
    x, y, pgd = made
    clean = stored(x)

    judged = robustkit.attack(linear(), x, y, load_examples((clean, pgd.x_adv)), eps=EPS)

    assert torch.equal(judged.success, pgd.success)


def test_of_images_that_differ_by_less_than_a_level_the_own_example_comes_first(made):
    """An example of one faint image was taken for that of all: they were the same when rounded."""
    x, y, _ = made
    faint = x / 255 / 6
    model = nn.Sequential(Brighter(), linear())
    pgd = robustkit.attack(model, faint, y, PGD(eps=0.0004, steps=10))

    judged = robustkit.attack(model, faint, y, load_examples((faint, pgd.x_adv)), eps=0.0004)

    assert 0 < int(pgd.success.sum()) < len(x)
    assert judged.success[pgd.success].all()
    assert judged.queries[pgd.success].eq(1).all()


class Brighter(nn.Module):
    def forward(self, x):
        return x * 255 * 6


def test_an_image_without_an_example_costs_no_more_because_another_has_many(made):
    x, y, _ = made
    noise = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0)) / 1000
    many = load_examples((x[:1].expand(40, 1, 8, 8), (x[:1] + noise).clamp(0, 1)))

    with pytest.warns(UserWarning, match="29 of the 30 images have no example in examples"):
        judged = robustkit.attack(linear(), x, y, many, eps=EPS)

    assert judged.forwards[0] == 42
    assert judged.forwards[1:].max() <= 3


def test_neither_the_order_of_the_examples_nor_the_rounding_of_the_images_matters(made):
    x, y, pgd = made
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    rounded = (x[order].double() * 255 / 255.0001).float()

    judged = robustkit.attack(linear(), x, y, load_examples((rounded, pgd.x_adv[order])), eps=EPS, batch_size=7)

    assert torch.equal(judged.success, pgd.success)


def test_all_examples_of_an_image_are_tried(made):
    x, y, pgd = made
    both = load_examples((torch.cat([x, x]), torch.cat([x, pgd.x_adv])))

    judged = robustkit.attack(linear(), x, y, both, eps=EPS)

    assert torch.equal(judged.success, pgd.success)
    # The clean image, two queries and the verdict on the last point.
    assert judged.forwards[judged.clean_correct & ~judged.success].eq(4).all()


def test_bytes_are_given_in_the_bounds_of_the_caller(made):
    x, y, pgd = made
    examples = load_examples((x * 255, pgd.x_adv * 255), bounds=(0, 255))

    judged = robustkit.attack(nn.Sequential(Divided(), linear()), x * 255, y, examples, eps=EPS, bounds=(0, 255))

    assert int((judged.success != pgd.success).sum()) <= 1  # 255 divided and multiplied again has other last bits


class Divided(nn.Module):
    def forward(self, x):
        return x / 255


def test_a_file_of_examples_alone_is_in_the_order_of_the_data(made, tmp_path):
    x, y, pgd = made
    file = as_file(tmp_path / "adv.npz", x_adv=pgd.x_adv)

    run = evaluate(linear(), dataset=(x, y), attacks=file, eps=EPS, samples=20)

    numbers = set(run.samples["sample"])
    assert broken(run, "adv.npz") == numbers & set(pgd.success.nonzero().flatten().tolist())
    with pytest.raises(UserError, match="has 30 examples and no clean images, and tensors has 20 images"):
        evaluate(linear(), dataset=(x[:20], y[:20]), attacks=file, eps=EPS)


def test_a_run_is_extended_by_images_of_a_file_of_examples_alone(made, tmp_path):
    """The file was said to have changed: only the examples of the first images had been hashed."""
    x, y, pgd = made
    file = as_file(tmp_path / "adv.npz", x_adv=pgd.x_adv)
    for count in (10, 30):
        run = evaluate(linear(), dataset=(x, y), attacks=file, eps=EPS, samples=count, out=tmp_path / "run")

    assert broken(run, "adv.npz") == set(pgd.success.nonzero().flatten().tolist())


def test_a_server_gets_pictures_of_8_bits_and_their_examples_are_found(made):
    """Data are rounded for a server after the examples were looked up, and none was judged, in silence."""
    x, y, pgd = made
    rounded = EightBitImages(given_dataset((x, y))).batch(range(30))[0]
    files = load_examples((x, pgd.x_adv))

    judged = robustkit.attack(linear(), rounded, y, files, eps=EPS)

    assert int((judged.success != pgd.success).sum()) <= 3
    assert judged.success.any()


def test_a_surrogate_is_not_queried_for_given_examples(made):
    x, y, pgd = made

    run = evaluate(linear(), dataset=(x, y), attacks=["fgsm", load_examples((x, pgd.x_adv))], eps=EPS, surrogates=cnn())

    assert set(run.results["attack"]) == {"clean", "fgsm@sequential", "examples", "worst-case"}


def test_kept_examples_of_a_run_are_judged_on_another_model(made, tmp_path):
    x, y, _ = made
    first = evaluate(linear(), dataset=(x, y), attacks="fgsm", eps=EPS, out=tmp_path, keep_adversarial=True)
    kept = first.adversarial(attack="fgsm")

    run = evaluate(cnn(), dataset=(x, y), attacks=load_examples(kept), eps=EPS)

    wrong = cnn()(kept.x_adv).argmax(1) != kept.y
    right = cnn()(kept.x).argmax(1) == kept.y
    assert broken(run, "examples") == set(kept.samples[wrong & right].tolist())


def test_a_safetensors_file_is_read_and_processes_and_parts_change_no_byte(made, tmp_path, monkeypatch):
    x, y, pgd = made
    monkeypatch.chdir(tmp_path)
    save_file({"x": x[:25].contiguous(), "x_adv": pgd.x_adv[:25].contiguous()}, "adv.safetensors")
    request = {"dataset": (x, y), "attacks": ["fgsm", "adv.safetensors"], "eps": ["0.05", EPS]}

    whole = evaluated(linear(), tmp_path / "whole", **request)
    in_workers = evaluated(linear(), tmp_path / "workers", **request, workers=2)

    assert csv(whole, tmp_path) == csv(in_workers, tmp_path)
    assert len(whole.manifest["warnings"]) == 2  # outside of the smaller ball, and without an example
    assert sorted(whole.manifest["warnings"]) == sorted(in_workers.manifest["warnings"])


def test_a_run_goes_on_with_the_same_examples_in_any_order_and_with_no_others(made, tmp_path):
    x, y, pgd = made
    evaluated(linear(), tmp_path, dataset=(x, y), attacks=load_examples((x, pgd.x_adv)), eps=EPS)

    evaluated(linear(), tmp_path, dataset=(x, y), attacks=load_examples((x.flip(0), pgd.x_adv.flip(0))), eps=EPS)
    with pytest.raises(UserError, match=r"the attack examples: .* \(sha256\)"):
        evaluated(linear(), tmp_path, dataset=(x, y), attacks=load_examples((x, x)), eps=EPS)


def test_examples_that_break_more_than_gradients_are_no_sign_of_masked_gradients(made):
    x, y, pgd = made
    weak = PGD(eps=EPS, steps=12, step_size=1e-6)

    run = evaluate(linear(), dataset=(x, y), attacks=[weak, load_examples((x, pgd.x_adv))], eps=EPS, checks="quick")

    assert len(broken(run, "examples")) > 2
    (check,) = [each for each in run.checks if each.name == "black_box_wins"]
    assert check.status == "not_applicable"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (lambda x: {"x": x}, "has no array x_adv"),
        (lambda x: {"x": x, "x_adv": x[:5]}, r"images of the shape \[30, 1, 8, 8\] and examples of \[5, 1, 8, 8\]"),
        (
            lambda x: {"x": x, "x_adv": (x - 0.5) / 0.5},
            "x_adv of adv.npz: images must lie in .* undo the normalisation",
        ),
        (lambda x: {"x": x, "x_adv": x * torch.nan}, "x_adv of adv.npz must be finite"),
        (lambda x: {"x": 1 - x, "x_adv": x}, "None of the 30 images is among the clean images x of adv.npz"),
    ],
)
def test_a_file_that_cannot_be_judged_is_refused_in_one_line(made, tmp_path, arrays, message):
    x, y, _ = made
    file = as_file(tmp_path / "adv.npz", **arrays(x))

    with pytest.raises(UserError, match=message):
        evaluate(linear(), dataset=(x, y), attacks=file, eps=EPS)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"norm": "L2", "eps": "minimum"}, "need a radius"),
        ({"norm": "Linf", "eps": EPS, "mask": "patch:0,0,3,3"}, "leave the mask out"),
        ({"norm": "rotation", "eps": 30}, "are judged in Linf, L2, L1, L0, not under rotation"),
    ],
)
def test_threats_in_which_given_examples_say_nothing_are_refused(made, request_, message):
    x, y, pgd = made

    with pytest.raises(UserError, match=message):
        evaluate(linear(), dataset=(x, y), attacks=load_examples((x, pgd.x_adv)), **request_)


def test_one_example_without_a_radius_and_a_missing_file_are_one_line(made):
    x, y, pgd = made

    with pytest.raises(UserError, match="have no radius; add eps="):
        robustkit.attack(linear(), x, y, load_examples((x, pgd.x_adv)))
    with pytest.raises(UserError, match=r"There is no file nothing\.npz"):
        evaluate(linear(), dataset=(x, y), attacks="nothing.npz", eps=EPS)
    with pytest.raises(UserError, match="robustkit evaluate judges the examples in a file"):
        robustkit.attack(linear(), x, y, "adv.npz", eps=EPS)


def test_given_examples_are_not_asked_to_find_a_planted_one(made):
    """They were said to miss all planted examples, so that the attacks of the run were too weak."""
    x, y, pgd = made

    run = evaluate(linear(), dataset=(x, y), attacks=load_examples((x, pgd.x_adv)), eps=EPS, checks="full")

    (check,) = [each for each in run.checks if each.name == "binarization"]
    assert check.status == "not_applicable"


def test_files_of_one_name_and_a_path_with_an_equals_sign(made, tmp_path, monkeypatch):
    x, y, pgd = made
    monkeypatch.chdir(tmp_path)
    for folder in ("a=1", "b"):
        (tmp_path / folder).mkdir()
        as_file(tmp_path / folder / "adv.npz", x=x, x_adv=pgd.x_adv)

    run = evaluate(linear(), dataset=(x, y), attacks="a=1/adv.npz", eps=EPS)
    assert broken(run, "adv.npz")
    with pytest.raises(UserError, match=r"Two attacks are called 'adv\.npz'; rename the file"):
        evaluate(linear(), dataset=(x, y), attacks=["a=1/adv.npz", "b/adv.npz"], eps=EPS)


@pytest.mark.parametrize("bounds", [(1, 0), (1, 1), (0, float("inf"))])
def test_bounds_that_hold_no_value_are_refused(made, bounds):
    x, _, pgd = made

    with pytest.raises(UserError, match="the lowest and the highest value of a pixel"):
        load_examples((x, pgd.x_adv), bounds=bounds)


@pytest.mark.parametrize("name", ["pgd", "default", "clean", "worst-case", "union", "certified", "a/b", " "])
def test_a_name_that_stands_for_something_else_is_refused(made, name):
    x, _, pgd = made

    with pytest.raises(UserError, match="cannot be the name of examples"):
        load_examples((x, pgd.x_adv), name=name)


def test_a_warning_names_the_callers_line(made):
    x, y, pgd = made

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        robustkit.attack(linear(), x, y, load_examples((x[:9], pgd.x_adv[:9])), eps=EPS)
        robustkit.attack(linear(), x, y, FGSM(eps=EPS, loss=lambda logits, y: -logits.softmax(1)[range(len(y)), y] * 0))

    assert {each.filename for each in found} == {__file__}


def test_a_page_does_not_say_that_an_attacker_made_given_examples_without_gradients(made):
    """It said that the attacker only queries the model, and that attacks without gradients were tried."""
    x, y, pgd = made
    run = evaluate(linear(), dataset=(x, y), attacks=load_examples((x, pgd.x_adv)), eps=EPS)

    text = page([run])

    assert "only queries the model" not in text
    assert "How the examples in examples were made is not known" in text
    (item,) = [each for each in checklist(boards([run])[0]) if each.item == "Attacks without gradients"]
    assert item.state == "not checked"


@pytest.mark.parametrize("again", [lambda x: (x + 1e-7).clamp(0, 1), lambda x: (x * 255).round() / 255])
def test_examples_of_two_nearly_equal_copies_of_an_image_are_all_tried(made, again):
    """Those of the nearest copy alone were tried: of two libraries, one of which had rounded, one was left out."""
    x, y, pgd = made
    examples = load_examples((torch.cat([x, again(x)]), torch.cat([x, pgd.x_adv])))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # around the rounded copy some lie outside
        judged = robustkit.attack(linear(), x, y, examples, eps=EPS)

    assert torch.equal(judged.success, pgd.success)


def test_the_default_type_of_torch_does_not_matter(made):
    x, y, pgd = made
    torch.set_default_dtype(torch.float64)
    try:
        examples = load_examples((x, pgd.x_adv))
    finally:
        torch.set_default_dtype(torch.float32)

    assert torch.equal(robustkit.attack(linear(), x, y, examples, eps=EPS).success, pgd.success)
