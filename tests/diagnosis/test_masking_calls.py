"""Masking by code in a forward method, where no layer can be named for it."""

import linecache
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tests.diagnosis import nets
from tests.diagnosis.nets import (  # fmt: skip
    CutOff,
    Deep,
    EightBits,
    Inline,
    Lambda,
    base,
    causes,
    diagnosed,
    remedies,
    undefended_accuracy,
)
from tests.networks import Changed, Falsified

LINES = {
    "round": "x = torch.round(x * 8) / 8",
    "detach": "x = x.detach()",
    "no_grad": "x = x * 1.0",
    "compare": "x = (x > 0.5).float()",
}
CAUSES = {"round": "step", "detach": "detached", "no_grad": "detached"}


@cache
def inline(kind):
    """The diagnosis of a network that masks in its own forward, with its proof."""
    return diagnosed(Inline(kind), 24, prove=True)


@pytest.mark.parametrize("kind", CAUSES)
def test_code_in_the_models_own_forward_is_found_and_undone_by_straight_through_gradients(kind):
    diagnosis = inline(kind)

    assert diagnosis.verdict == "masked"
    assert causes(diagnosis) == [("", CAUSES[kind])]
    assert remedies(diagnosis) == {"straight-through"}
    assert diagnosis.proof.after <= undefended_accuracy() + 3 / 32


@pytest.mark.parametrize("kind", CAUSES)
def test_code_in_the_forward_of_an_inner_module_is_found_there(kind):
    assert causes(diagnosed(Deep(kind), 24)) == [("inner.0", CAUSES[kind])]


@pytest.mark.parametrize("kind", LINES)
def test_the_line_that_masks_comes_first(kind):
    site = inline(kind).source[0]

    assert site.file == nets.__file__
    assert site.code == LINES[kind] == linecache.getline(site.file, site.line).strip()


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [("no_grad", "straight-through"), ("inference_mode", "gradient-free"), ("detach", "straight-through")],
)
def test_logits_without_a_graph_are_the_fault_of_the_models_own_forward(kind, remedy):
    diagnosis = diagnosed(CutOff(kind), 24, prove=True)

    assert diagnosis.verdict == "masked"
    assert causes(diagnosis) == [("", "detached")]
    assert remedies(diagnosis) == {remedy}
    assert diagnosis.proof.before is None
    assert diagnosis.proof.after < diagnosis.proof.clean - 0.2


def test_values_that_a_threshold_hides_from_the_gradient_call_for_the_whole_proof():
    """A Square of 32 queries found nothing, and the model was called clear; AutoAttack halves its robust accuracy."""
    diagnosis = diagnosed(Inline("threshold"), 24, prove=True, eps="0.1")

    assert diagnosis.verdict == "masked"
    assert diagnosis.proof.attack_search == "square:queries=500"
    assert any("do not see them" in note for note in diagnosis.notes)


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.5), ("L1", 2.0)])
def test_a_gradient_that_is_reversed_at_every_tenth_value_is_named(norm, eps):
    """It left every fidelity near 1, and the model was called clear without a suspicion."""
    front = Lambda(lambda x: Falsified.apply(x, -1.0, 10))
    inline, layer = Changed(base(), before=front.function), nn.Sequential(front, base())

    for model, name in ((inline, ""), (layer, "0")):
        assert causes(diagnosed(model, 40, norm=norm, eps=eps)) == [(name, "wrong backward")]


def test_every_value_has_a_gradient_in_an_ordinary_network():
    assert not any("do not see them" in note for note in diagnosed(base(), 24).notes)


@pytest.mark.parametrize("kind", ["no_grad", "detach"])
def test_logits_without_a_graph_are_found_where_the_first_layer_makes_a_view(kind):
    """Under no_grad the output of Flatten has no edge in the graph, and the diagnosis ended with an AssertionError."""
    model = CutOff(kind)
    model.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    diagnosis = diagnosed(model, 24)

    assert diagnosis.verdict == "masked"
    assert causes(diagnosis) == [("", "detached")]


class Voting(nn.Module):
    """Three copies of an ordinary network vote."""

    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList([base() for _ in range(3)])

    def forward(self, x):
        return sum(nn.functional.one_hot(member(x).argmax(1), 10) for member in self.members).float()


class Purifier(nn.Module):
    """Half of the way to what a layer returns, without a gradient for it."""

    def __init__(self):
        super().__init__()
        self.denoise = nn.AvgPool2d(3, 1, 1)

    def forward(self, x):
        return (x + self.denoise(x)).detach() / 2


def test_a_vote_is_attacked_through_its_counts():
    """The remedy was to pass straight through the argmax, of which no gradient came back, and its attack failed."""
    diagnosis = diagnosed(Voting(), 24, prove=True)

    assert remedies(diagnosis) == {"straight-through"}
    assert diagnosis.prescription[0].option == "--straight-through"
    assert diagnosis.proof.after < diagnosis.proof.clean - 0.3


def test_a_layer_with_layers_inside_that_keeps_the_shape_is_named_for_bpda():
    """The remedy said that --bpda could name a layer of its own, of one that is."""
    (remedy,) = diagnosed(nn.Sequential(Purifier(), base())).prescription

    assert remedy.text.endswith("--bpda 0")


def test_a_layer_under_no_grad_is_undone_by_removing_no_grad():
    (remedy,) = diagnosed(CutOff("no_grad"), 24).prescription

    assert "remove its no_grad" in remedy.text


def test_images_that_go_through_numpy_are_attacked_without_gradients():
    diagnosis = diagnosed(Inline("numpy"), 24, prove=True)

    assert remedies(diagnosis) == {"gradient-free"}
    assert diagnosis.proof.after < diagnosis.proof.clean - 0.2


def test_a_proven_cause_leaves_no_other_explanation_in_the_notes():
    assert inline("round").notes == ()


def test_a_comparison_is_attacked_through_a_sigmoid():
    diagnosis = inline("compare")

    assert remedies(diagnosis) == {"straight-through"}
    assert diagnosis.proof.before is None
    assert diagnosis.proof.after < diagnosis.proof.clean - 0.2


def test_noise_drawn_in_a_forward_is_found():
    diagnosis = diagnosed(Inline("noise"))

    assert diagnosis.verdict == "randomized"
    assert causes(diagnosis) == [("", "randomized")]
    assert remedies(diagnosis) == {"eot"}


def test_values_of_eight_bits_are_measured_where_torch_computes_nothing_with_them():
    (coarse,) = (row for row in diagnosed(EightBits(logits=False)).rows if row.layer == "coarse")

    assert coarse.verdict in ("faithful", "straight-through")  # and not unmeasured
    assert causes(diagnosed(EightBits(logits=True), 24, prove=True)) in ([("", "step")], [("", "detached")])


def test_a_layer_is_repeated_in_the_precision_of_its_call():
    # Outside of the model's own autocast, its 16-bit inputs met the 32-bit weights of the next layer: a RuntimeError.
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = base()

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.net(x)

    diagnosis = diagnosed(Mixed(), 24, eps=0.3)

    assert not diagnosis.causes
    assert "faithful" in {row.verdict for row in diagnosis.rows}  # of others, 16 bits round the response away
