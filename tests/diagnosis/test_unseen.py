"""Values of the image that move the logits although their gradient is exactly zero."""

import pytest
import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.diagnosis.calls import Site
from robustkit.diagnosis.loss_gradients import loss_gradients
from robustkit.diagnosis.subject import Subject
from robustkit.primitives.threat import ball
from tests.diagnosis.nets import base, diagnosed, remedies


class Threshold(nn.Module):
    """Four logits, each the sum of two values; the first of them passes only above a threshold."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.split(4, dim=1)
        return first * (first > self.threshold) + second


def examined(threshold: float, x: Tensor) -> Subject:
    labels = torch.zeros(len(x), dtype=torch.int64)
    return Subject(Classifier(Threshold(threshold)), x, labels, ball("Linf", 0.1), "margin", 0, 8)


def test_the_share_is_that_of_the_values_below_the_threshold():
    x = torch.cat([torch.zeros(6, 4), torch.full((6, 4), 0.5)], 1) + torch.linspace(0, 0.04, 6)[:, None]
    subject = examined(0.05, x)
    below, above = (subject.perturbed - x).split(4, dim=1)
    risen = torch.where(x[:, :4] + below > 0.05, x[:, :4] + below, 0)  # from 0

    assert (risen > 0).any(1).sum() >= 4
    expected = risen.norm(dim=1) / (risen + above).norm(dim=1)
    assert loss_gradients(subject, [Site("", 0)]).whole.unseen.tolist() == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("threshold", [0.05, 0.9], ids=["all are above", "none gets there"])
def test_values_that_have_a_gradient_or_no_effect_do_not_count(threshold):
    subject = examined(threshold, torch.full((2, 8), 0.5))

    assert loss_gradients(subject, [Site("", 0)]).whole.unseen.tolist() == [0.0, 0.0]


class Clamped(nn.Module):
    """A network behind a hardtanh, in a layer or in a forward method."""

    def __init__(self, layer: nn.Module | None) -> None:
        super().__init__()
        self.layer, self.network = layer, base()

    def forward(self, x: Tensor) -> Tensor:
        return self.network(nn.functional.hardtanh(x, 0, 1) if self.layer is None else self.layer(x))


def test_a_clamp_in_front_of_the_network_has_a_remedy():
    """In a forward method none was named: the gradient of a clamp is zero at its ends, straight through steps, too."""
    layer, inline = (diagnosed(Clamped(each), 32, prove=True, eps=0.1) for each in (nn.Hardtanh(0, 1), None))

    assert remedies(layer) == {"bpda"}
    assert inline.verdict == "masked"
    assert any("--bpda LAYER" in note for note in inline.notes)
