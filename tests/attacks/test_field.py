"""Bugs of other tools' attacks that belong to no single file here; the others are tests beside their attack."""

import pytest
import torch
from robustkit.attacks import APGD, BIM, FAB, ContrastReduction
from torch import Tensor, nn

from robustkit import attack
from robustkit.classifier.classifier import Classifier
from robustkit.testing.doubles import Counting
from tests.attacks.linear import linear


class Band(nn.Module):
    """Errors in a narrow band of grey around 0.62; the margin rises towards it from both sides."""

    def forward(self, x: Tensor) -> Tensor:
        margin = 0.05 - (x.flatten(1).mean(1) - 0.62).abs()
        return torch.stack([torch.zeros_like(margin), margin], 1)


@pytest.mark.parametrize("method", [BIM(0.5, steps=9, step_size=0.3), APGD(0.5, steps=9)])
def test_art_an_error_met_on_the_way_is_returned_and_not_the_last_iterate(method):
    # ART's APGD returns where it ends: steps that are too long cross the band of errors again and again.
    x, y = torch.linspace(0.2, 0.4, 5).reshape(5, 1, 1, 1).expand(5, 1, 4, 4), torch.zeros(5, dtype=torch.int64)
    result = attack(Band(), x, y, method)

    assert (result.queries[result.success] < 9).any()
    assert torch.equal(Band()(result.x_adv).argmax(1) == 1, result.success)


def test_autoattack_fab_asks_once_for_the_class_and_the_gradients():
    # fra31's code asks twice in each iteration, for the gradients and for the class: 1,837 forwards for 900 gradients.
    made = linear(5, count=4)
    model = Counting(made.model)
    result = attack(Classifier(model, fold=False), made.x, made.y, FAB(1e-6, steps=3, targets=4))

    assert torch.equal(result.forwards, 1 + result.backwards + 4)  # the clean one, and a verdict for each target


def test_art_2256_an_attack_that_cannot_aim_breaks_nothing_where_a_target_is_wanted():
    # ART's AutoAttack ran it untargeted, or returned clean images, without a word.
    made = linear(5, count=4)
    target = torch.where(made.y == 4, 3, 4)
    result = attack(made.model, made.x, made.y, ContrastReduction(1.0), target=target)

    assert torch.equal(result.success, made.model(result.x_adv).argmax(1) == target)
    assert not result.success.all()
