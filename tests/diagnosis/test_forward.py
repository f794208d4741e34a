"""Masks in a forward method, where no layer stands for them."""

import linecache

import pytest

from robustkit.diagnosis import diagnose
from tests.diagnosis import nets
from tests.diagnosis.nets import EPS, Deep, Inline, images, undefended_accuracy

LINES = {
    "round": "x = torch.round(x * 8) / 8",
    "detach": "x = x.detach()",
    "no_grad": "x = x * 1.0",
    "compare": "x = (x > 0.5).float()",
}
every_mask = pytest.mark.parametrize(
    ("kind", "cause"), [("round", "step"), ("detach", "detached"), ("no_grad", "detached")]
)


@every_mask
def test_code_in_the_models_own_forward_is_found(kind, cause):
    x, y = images(24)
    found = diagnose(Inline(kind), x, y, eps=EPS, prove=False)

    assert found.verdict == "masked"
    assert [(row.layer, row.verdict) for row in found.culprits] == [("", cause)]


@every_mask
def test_code_in_the_forward_of_an_inner_module_is_found_there(kind, cause):
    x, y = images(24)
    found = diagnose(Deep(kind), x, y, eps=EPS, prove=False)

    assert [(row.layer, row.verdict) for row in found.culprits] == [("inner.0", cause)]


@pytest.mark.parametrize("kind", list(LINES))
def test_the_guilty_line_comes_first(kind):
    x, y = images(8)
    site = diagnose(Inline(kind), x, y, eps=EPS, prove=False).source[0]

    assert site.file == nets.__file__
    assert site.code == LINES[kind] == linecache.getline(site.file, site.line).strip()


@pytest.mark.parametrize("kind", ["round", "detach", "no_grad"])
def test_passing_gradients_straight_through_undoes_it(kind):
    x, y = images()
    found = diagnose(Inline(kind), x, y, eps=EPS)

    assert [remedy.kind for remedy in found.prescription] == ["straight-through"]
    assert found.proof.after <= undefended_accuracy() + 3 / 32


def test_what_cannot_be_passed_straight_through_is_attacked_without_gradients():
    x, y = images(24)
    found = diagnose(Inline("compare"), x, y, eps=EPS)

    assert [remedy.kind for remedy in found.prescription] == ["gradient-free"]
    assert found.proof.before is None
    assert found.proof.after < found.proof.clean - 0.2


def test_noise_drawn_in_a_forward_is_found():
    x, y = images(8)
    found = diagnose(Inline("noise"), x, y, eps=EPS, prove=False)

    assert found.verdict == "stochastic"
    assert [(row.layer, row.verdict) for row in found.culprits] == [("", "stochastic")]
    assert [remedy.kind for remedy in found.prescription] == ["eot"]
