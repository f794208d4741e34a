"""Which layers a diagnosis examines, and models that are difficult to examine."""

import pytest
import torch
from torch import nn

from robustkit.classifier.classifier import Classifier
from tests.diagnosis.nets import Lambda, Rounding, base, causes, defended, diagnosed, remedies


class Holder(nn.Module):
    """An ordinary network and a layer beside it, which `forward` may use."""

    def __init__(self, layer: nn.Module, forward) -> None:
        super().__init__()
        self.body, self.layer, self.run = base(), layer, forward

    def forward(self, x):
        return self.run(self, x)


def test_a_layer_that_never_runs_is_listed():
    diagnosis = diagnosed(Holder(nn.Linear(2, 2), lambda net, x: net.body(x)))

    assert [each.layer for each in diagnosis.unseen] == ["layer"]
    assert "unseen   layer" in str(diagnosis)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`", "ignore::DeprecationWarning")
def test_a_masking_layer_that_hooks_cannot_see_is_not_called_clear():
    diagnosis = diagnosed(nn.Sequential(torch.jit.script(Rounding()), base()))

    assert diagnosis.unseen[0].layer == "0"
    assert "scripted" in diagnosis.unseen[0].reason
    assert diagnosis.verdict == "inconclusive"


def test_a_compiled_layer_is_examined_as_it_was_before():
    layer = Rounding()
    layer.compile(backend="eager")

    assert causes(diagnosed(nn.Sequential(layer, base()))) == [("0", "step")]


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
@pytest.mark.parametrize("classify", [lambda model: model, Classifier])
def test_the_network_inside_a_wrapper_is_examined(wrap, classify):
    diagnosis = diagnosed(classify(wrap(defended("quantised"))))

    assert causes(diagnosis) == [("quantise", "step")]
    assert diagnosis.unseen == ()


def test_only_the_chosen_layers_are_examined():
    diagnosis = diagnosed(defended("quantised"), layers=["network.conv*"])

    assert [row.layer for row in diagnosis.rows] == ["network.conv1", "network.conv2"]
    assert diagnosis.verdict == "inconclusive"


class Noise(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x)


def test_noise_is_found_outside_the_chosen_layers():
    diagnosis = diagnosed(nn.Sequential(Noise(), base()), layers=["1.conv1"])

    assert diagnosis.verdict == "randomized"
    assert causes(diagnosis) == [("0", "randomized")]
    assert remedies(diagnosis) == {"eot"}


@pytest.mark.filterwarnings("ignore:`torch.jit.script`", "ignore::DeprecationWarning")
def test_noise_in_a_layer_that_hooks_cannot_see_is_found():
    diagnosis = diagnosed(nn.Sequential(torch.jit.script(Noise()), base()))

    assert diagnosis.verdict == "randomized"


def test_each_call_of_a_shared_layer_has_its_row():
    relu = nn.ReLU(inplace=True)
    diagnosis = diagnosed(Holder(relu, lambda net, x: net.body(net.layer(2 * net.layer(x)))))

    assert [(row.layer, row.call) for row in diagnosis.rows[:2]] == [("layer", 0), ("layer", 1)]
    assert diagnosis.rows[1].name == "layer #2"


def test_a_layer_whose_backward_returns_nan_is_found():
    diagnosis = diagnosed(nn.Sequential(Lambda(lambda x: x + 0 * (x - x.detach()).sqrt()), base()), prove=True)

    assert causes(diagnosis) == [("0", "non-finite")]
    assert diagnosis.proof.before is None
    assert diagnosis.proof.after < 0.5


def test_a_layer_that_computes_something_else_with_gradients_is_found():
    two_faced = Lambda(lambda x: 0 * x + 0.5 if torch.is_grad_enabled() else x)
    diagnosis = diagnosed(nn.Sequential(two_faced, base()))

    assert causes(diagnosis) == [("0", "no_grad differs")]
    assert remedies(diagnosis) == {"gradient-free"}


def test_two_causes_are_both_found_and_undone_together():
    diagnosis = diagnosed(nn.Sequential(Rounding(), defended("softmax")), 24, prove=True)

    assert causes(diagnosis) == [("0", "step"), ("1.softmax", "probabilities")]
    assert remedies(diagnosis) == {"bpda", "probabilities"}
    assert diagnosis.proof.after < 0.2
