"""Evaluations in a patch, in a frame and under a mask: what is attacked, stored, shown and refused."""

import re
from pathlib import Path

import numpy as np
import pytest
from robustkit.attacks import APGD, PGD
from robustkit.reports import write_report

from robustkit import UserError, diagnose, gate, load_mask, load_run
from tests.small import accuracy, broken, cnn, data, evaluated, linear

PAGE = Path(__file__).parents[2] / "docs" / "localised.md"
MIDDLE = np.zeros((8, 8), bool)
MIDDLE[2:6, 3] = MIDDLE[4] = True
EDGE = ~np.pad(np.ones((6, 6), bool), 1)


def test_a_larger_patch_breaks_what_a_smaller_one_does(tmp_path):
    run = evaluated(
        linear(), tmp_path, dataset=data(), attacks=["patch_search:steps=12", "sparse_rs:queries=30"], norm="patch",
        eps=["1", "2"],
    )  # fmt: skip
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")

    assert broken(run, "patch_search:steps=12", "1") < broken(run, "patch_search:steps=12", "2")
    assert set(run.results.norm) == {"-", "patch"}
    assert load_run(tmp_path).results.equals(run.results)
    assert "side of the patch, pixels" in page
    assert "all pixels of one square of 2 x 2 may change" in page
    assert "the side of a patch in pixels" in page


def test_a_frame_is_a_threat_model_and_may_also_be_a_mask():
    frame = evaluated(linear(), None, dataset=data(), attacks="pgd:steps=5", norm="frame", eps="1")
    masked = evaluated(linear(), None, dataset=data(), attacks="pgd:steps=5", eps="1", mask=EDGE)

    assert accuracy(frame, "worst-case") < accuracy(frame, "clean")
    assert abs(accuracy(frame, "worst-case") - accuracy(masked, "worst-case")) <= 0.1


def test_a_masked_run_says_so_in_every_row_and_on_the_page(tmp_path, brief):
    mask = load_mask(MIDDLE)
    run = evaluated(cnn(), tmp_path, dataset=data(), attacks=brief, eps=["0.05", "0.1"], mask=MIDDLE)
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")

    assert set(run.results.norm) == {"-", f"Linf-in-{mask.label}"}
    assert run.manifest["identity"]["masks"] == {mask.label: "11 of 8x8 pixels, given as an array"}
    assert f"Only the pixels of {mask.label} (11 of 8x8 pixels, given as an array) may change." in page
    assert accuracy(run, "worst-case", "0.1") < accuracy(run, "clean")
    assert f"by up to 0.1, in {mask.label} and nowhere else" in page
    assert not gate(run, fail_under=f"linf-in-{mask.label}@0.1>=99%").passed
    for picture in run.pictures:
        assert not ((picture.x != picture.x_adv).any(0) & ~MIDDLE).any()


@pytest.mark.parametrize(("norm", "eps"), [("Linf", "0.1"), ("L2", "0.3"), ("L1", "0.5")])
def test_a_point_that_cannot_gain_more_is_no_sign_of_masked_gradients(norm, eps, brief):
    """With one pixel free, the first steps end where the gradient predicts most; rounding was taken for a sign."""
    pixel = np.zeros((8, 8), bool)
    pixel[3, 4] = True
    run = evaluated(linear(), None, dataset=data(60), attacks=brief, norm=norm, eps=eps, mask=pixel)

    assert not [text for text in run.manifest["warnings"] if "gradient" in text]
    assert accuracy(run, "worst-case", eps) > 0.5


def test_runs_with_different_masks_never_mix(tmp_path):
    def run(mask, **further):
        evaluated(linear(), tmp_path, dataset=data(), attacks="fgsm", eps="0.1", mask=mask, **further)

    run(MIDDLE)
    run(load_mask(MIDDLE))
    for other in (EDGE, None, "patch:0,0,2,2"):
        with pytest.raises(UserError, match=f"the radius Linf-in-{load_mask(MIDDLE).label} 0.1 is missing"):
            run(other)


def test_distances_are_measured_inside_the_mask():
    run = evaluated(linear(), None, dataset=data(12), attacks="fmn:steps=30", norm="L2", eps="minimum", mask=MIDDLE)
    whole = evaluated(linear(), None, dataset=data(12), attacks="fmn:steps=30", norm="L2", eps="minimum")
    median = [one.results.query("role == 'worst-case'").median_distance.item() for one in (run, whole)]

    assert median[0] > 1.3 * median[1]


def test_queries_of_attacks_on_labels_are_counted_under_a_mask():
    run = evaluated(
        linear(), None, dataset=data(6), attacks="hopskipjump:queries=40", norm="L2", eps="minimum", mask=MIDDLE
    )
    curve = run.query_curve()

    assert set(curve.norm) == {f"L2-in-{load_mask(MIDDLE).label}"}
    assert curve.median_distance.iloc[-1] > 0


def test_attack_objects_bring_their_mask():
    mask = load_mask(MIDDLE)
    run = evaluated(linear(), None, dataset=data(), attacks=PGD(0.1, steps=2, mask=mask))

    assert set(run.results.norm) == {"-", f"Linf-in-{mask.label}"}
    with pytest.raises(UserError, match="different masks; give the same one"):
        evaluated(linear(), None, dataset=data(), attacks=[PGD(0.1, mask=mask), APGD(0.1, mask=load_mask(EDGE))])
    with pytest.raises(UserError, match="different masks; give the same one"):
        evaluated(linear(), None, dataset=data(), attacks=PGD(0.1, mask=mask), mask=EDGE)


@pytest.mark.parametrize(
    ("request_of", "sentence"),
    [
        ({"norm": "patch", "eps": "3"}, "ensemble default has no patch form; name attacks .*: patch_search"),
        ({"norm": "L0", "eps": "3"}, "ensemble default has no L0 form; name attacks .*: sparse_rs, sigma_zero or pgd"),
        ({"norm": "frame", "eps": "3", "attacks": "autoattack"}, "ensemble autoattack has no frame form"),
        (
            {"norm": "patch", "eps": "3", "attacks": "sparse_rs", "audit": 3},
            "AutoAttack, which has no patch form; leave out --audit",
        ),
        ({"norm": "patch", "attacks": "sparse_rs"}, "no radius for patch; add one, for example --eps patch:5"),
        ({"norm": "patch", "eps": "0.1", "attacks": "sparse_rs"}, "side in pixels, so eps must be a whole number"),
        ({"norm": "patch", "eps": "9", "attacks": "sparse_rs"}, "larger than an image of 8 x 8 pixels; .* at most 8"),
        ({"norm": "frame", "eps": "5", "attacks": "pgd"}, "frame 5 is larger than an image .* at most 4"),
        ({"norm": "translation", "eps": "20", "attacks": "grid"}, "translation 20 is larger than an image"),
        ({"norm": "patch", "eps": "minimum", "attacks": "sparse_rs"}, "threat patch needs a radius"),
        ({"norm": "patch", "eps": "3", "attacks": "sparse_rs", "mask": MIDDLE}, "a patch has its own place"),
        ({"mask": MIDDLE[1:]}, "mask has 7x8 pixels and the images have 8x8"),
        ({"mask": "nowhere.png"}, "is not a mask; give an image"),
        ({"mask": MIDDLE, "attacks": "pgd", "smooth": 0.1}, "on whole images; leave the mask out"),
        ({"norm": "patch", "eps": "3", "attacks": "sparse_rs", "smooth": 0.1}, "in patch nothing is; leave patch out"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_before_any_work(request_of, sentence):
    with pytest.raises(UserError, match=sentence):
        evaluated(linear(), None, dataset=data(), **request_of)


def test_gradients_are_not_diagnosed_in_a_patch():
    with pytest.raises(UserError, match="and patch is not one"):
        diagnose(linear(), *data(), eps=2, norm="patch")


def test_the_python_of_the_page_runs():
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})
