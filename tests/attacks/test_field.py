"""Bugs of other tools' attacks that belong to no single file here; the others are tests beside their attack."""

import pytest
import torch
from robustkit.attacks import APGD, BIM, DDN, FAB, FMN, PDPGD, ContrastReduction, Noise, Square
from torch import Tensor, nn

from robustkit import attack
from robustkit.classifier.classifier import Classifier
from robustkit.primitives.registry import build
from tests.attacks.linear import linear
from tests.networks import Changed
from tests.problems import problem


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


class OnTheWay(nn.Module):
    """Class 2 is the likeliest wrong one and never wins; class 1 wins on the way to it, near a mean grey of 0.62."""

    def forward(self, x: Tensor) -> Tensor:
        grey = x.flatten(1).mean(1)
        return torch.stack([torch.zeros_like(grey), 1 - 20 * (grey - 0.62).abs(), 0.01 * grey - 1], 1)


def test_adv_lib_another_wrong_class_on_the_way_to_the_target_breaks_the_image():
    # adv-lib's APGD looks for the target class alone: the image passes for robust.
    x, y = torch.full((2, 1, 4, 4), 0.5), torch.zeros(2, dtype=torch.int64)
    result = attack(OnTheWay(), x, y, BIM(0.4, steps=10, loss="margin", targets=1))

    assert result.success.all()
    assert result.prediction.tolist() == [1, 1]


@pytest.mark.parametrize("method", [FMN(0.4, "L2"), DDN(0.4, "L2"), PDPGD(0.4, "L2")])
def test_adv_lib_a_search_for_the_nearest_error_ends_at_the_first_one_inside_of_the_radius(method):
    # adv-lib's loops make all their steps for all images.
    made = linear(3, count=8)
    result = attack(made.model, made.x, made.y, method)

    assert result.success.all()
    assert (result.queries < method.steps / 2).all()


BUDGETS = [
    ("pgd", "Linf", 40), ("apgd-t", "Linf", 100), ("fab-t", "Linf", 100), ("deepfool", "L2", 9 * 50),
    ("ddn", "L2", 100), ("cw", "L2", 9 * 1000), ("ead", "L1", 9 * 1000), ("sigma-zero", "L0", 1000),
]  # fmt: skip


@pytest.mark.parametrize(("name", "norm", "gradients"), BUDGETS)
def test_art_and_torchattacks_no_default_budget_is_one_of_ten_steps(name, norm, gradients):
    # ART's C&W makes ten searches of ten steps; APGD, APGD-T and FAB of torchattacks' AutoAttack take ten steps.
    # For C&W and EAD it is a tenth of their authors' code, which takes 10,000 steps in each search; both files say so.
    assert build(name, norm, 1).cost.backwards >= gradients


class Decoy(nn.Module):
    """Errors between a mean grey of 0.55 and 0.62; above, the loss is higher than there, and yet no class wins."""

    def forward(self, x: Tensor) -> Tensor:
        grey = x.flatten(1).mean(1, keepdim=True)
        first = torch.where((grey > 0.55) & (grey < 0.62), 0.1, -0.5)
        others = torch.where(grey > 0.62, -0.1, -10.0).expand(-1, 20)
        return torch.cat([torch.zeros_like(grey), first + 0.01 * grey, others + 0.01 * grey], 1)


def test_secml_an_error_counts_although_a_later_point_has_a_higher_loss():
    # secml-torch returns the point of the highest loss, which may be no error.
    x, y = torch.full((2, 1, 4, 4), 0.5), torch.zeros(2, dtype=torch.int64)
    result = attack(Decoy(), x, y, BIM(0.2, steps=4))

    assert result.success.all()
    assert result.prediction.tolist() == [1, 1]


def test_secml_the_point_after_the_last_step_is_judged():
    # Its loop ends with a step, and nobody looks at where it leads.
    made = linear(2)
    eps = made.distance["Linf"].median().item()
    last = (made.distance["Linf"] / eps > 0.7) & (made.distance["Linf"] / eps < 0.95)  # two steps of three end before
    result = attack(made.model, made.x[last], made.y[last], BIM(eps, steps=3))

    assert last.any()
    assert result.success.all()


def test_foolbox_600_a_model_on_the_cpu_is_attacked_there_although_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    made = linear(2, count=4)

    assert attack(made.model, made.x, made.y, BIM(0.01, steps=2)).x_adv.device.type == "cpu"


def test_autoattack_fab_asks_once_for_the_class_and_the_gradients():
    # fra31's code asks twice in each iteration, for the gradients and for the class: 1,837 forwards for 900 gradients.
    made = linear(5, count=4)
    result = attack(made.model, made.x, made.y, FAB(1e-6, steps=3, targets=4))

    assert torch.equal(result.forwards, 1 + result.backwards + 4)  # the clean one, and a verdict for each target


def test_art_2256_an_attack_that_cannot_aim_breaks_nothing_where_a_target_is_wanted():
    # ART's AutoAttack ran it untargeted, or returned clean images, without a word.
    made = linear(5, count=4)
    target = torch.where(made.y == 4, 3, 4)
    result = attack(made.model, made.x, made.y, ContrastReduction(1.0), target=target)

    assert torch.equal(result.success, made.model(result.x_adv).argmax(1) == target)
    assert not result.success.all()


def test_autoattack_no_gradient_of_a_weight_is_computed():
    # Its FAB, ART, secml-torch and advertorch call backward(), which computes all of them in every step.
    made, computed = problem("cnn", 1, 8, 8, count=2), []
    for weight in made.model.parameters():
        weight.register_hook(computed.append)
    attack(Classifier(made.model, fold=False), made.x, made.y, FAB(0.01, steps=2))

    assert not computed


@pytest.mark.parametrize("method", [Square(0.01, queries=3), Noise(0.01, queries=3)])
def test_crattack_no_graph_is_built_where_no_gradient_is_wanted(method):
    # Its verdicts and the points that it tests take the memory of a backward pass that never comes.
    made, graphs = problem("cnn", 1, 8, 8, count=4), []
    model = Changed(made.model, lambda logits: graphs.append(logits.requires_grad) or logits)
    attack(Classifier(model, fold=False), made.x, made.y, method)

    assert graphs
    assert not any(graphs)
