import math

import pytest
import torch
from robustkit.attacks import APGD, BIM, PGD, Noise, Square
from torch import nn

from robustkit import Classifier, attack
from robustkit.engine.attack_tensors import likeliest
from robustkit.errors import UserError
from tests.networks import Changed
from tests.problems import digits, images, problem

SHORT = PGD(0.03, steps=5)


def test_accuracies_are_shares_of_all_images():
    made = problem("cnn", 1, 8, 8)
    y = made.y.clone()
    y[:3] = (y[:3] + 1) % 4
    result = attack(made.model, made.x, y, SHORT)
    broken = int(result.success.sum())

    assert result.clean_accuracy == 9 / 12
    assert result.robust_accuracy == (9 - broken) / 12
    assert result.attack_success_rate == pytest.approx(broken / 9)


def test_misclassified_images_are_not_attacked_and_cost_one_pass():
    made = problem("cnn", 1, 8, 8)
    y = (made.y + 1) % 4
    y[0] = made.y[0]
    result = attack(made.model, made.x, y, SHORT)

    assert torch.equal(result.x_adv[1:], made.x[1:])
    assert not result.success[1:].any()
    assert torch.equal(result.prediction[1:], made.y[1:])
    assert set(result.forwards[1:].tolist()) == {1}
    assert set(result.queries[1:].tolist()) == set(result.backwards[1:].tolist()) == {0}


def test_a_model_without_a_correct_image_is_not_an_error():
    made = problem("cnn", 1, 8, 8)
    result = attack(made.model, made.x, (made.y + 1) % 4, SHORT)

    assert result.clean_accuracy == result.robust_accuracy == 0
    assert math.isnan(result.attack_success_rate)


def test_a_single_image_is_attacked():
    made = problem("cnn", 1, 8, 8, count=1)

    assert attack(made.model, made.x, made.y, SHORT).success.shape == (1,)


def test_images_with_numbers_are_attacked_in_parts_as_in_one_call():
    made = problem("cnn", 1, 8, 8)
    whole = attack(made.model, made.x, made.y, SHORT)

    for part in (range(1, 12, 2), range(0, 12, 2)):
        rows = list(part)
        result = attack(made.model, made.x[rows], made.y[rows], SHORT, numbers=part)
        assert torch.equal(result.x_adv, whole.x_adv[rows])
        assert torch.equal(result.success, whole.success[rows])
        assert torch.equal(result.queries, whole.queries[rows])


def test_wrong_classes_are_ordered_by_their_logits():
    assert likeliest(torch.tensor([0.1, 0.9, 0.5, 0.9]), 3) == [1, 2, 0]


def test_a_confident_model_is_broken_although_its_cross_entropy_has_no_gradient():
    # Cross-entropy in fp32 has no gradient once the margin passes 104 or so; log-odds still have.
    made = digits()
    x, y = made.x[:60], made.y[:60]
    confident = Changed(made.model, lambda logits: 50 * logits)
    ours = attack(confident, x, y, BIM(0.2, steps=10))
    with pytest.warns(UserWarning, match="exactly zero"):
        theirs = attack(confident, x, y, BIM(0.2, steps=10, loss="ce"))

    assert ours.clean_accuracy > 0.8
    assert ours.robust_accuracy < 0.1
    assert theirs.robust_accuracy > 0.5


def test_square_does_not_get_weaker_in_larger_batches():
    # auto-attack draws one window and one colour for the whole batch.
    made = digits()
    x, y = made.x[:16], made.y[:16]
    alone, together = (attack(made.model, x, y, Square(0.1, queries=30), batch_size=size) for size in (1, 64))

    assert torch.equal(alone.success, together.success)
    assert torch.equal(alone.x_adv, together.x_adv)


def test_more_targets_than_classes_are_as_many_as_there_are():
    # auto-attack's issue 110: nine targets on eight classes.
    made = problem("mlp", 1, 8, 8, classes=3)
    attacks = (APGD(0, steps=3, targets=targets) for targets in (2, 9))
    few, many = (attack(made.model, made.x, made.y, method) for method in attacks)

    assert torch.equal(few.forwards, many.forwards)
    assert set(many.forwards.tolist()) == {1 + 2 * 4}


def test_a_classifier_brings_its_own_bounds():
    made = problem("mlp", 1, 8, 8)
    result = attack(Classifier(made.model, bounds=(-1, 1)), 2 * made.x - 1, made.model(2 * made.x - 1).argmax(1), SHORT)

    assert result.clean_accuracy == 1


def test_images_that_require_a_gradient_leave_no_graph_behind():
    made = problem("mlp", 1, 8, 8)
    x = made.x.clone().requires_grad_()
    result = attack(made.model, x, made.y, SHORT)

    assert not result.x_adv.requires_grad
    assert x.grad is None


def test_warnings_about_the_model_reach_the_caller():
    made = problem("mlp", 1, 8, 8)

    with pytest.warns(UserWarning, match="probabilities"):
        attack(nn.Sequential(made.model, nn.Softmax(1)), made.x, made.y, SHORT)


class Rounded(nn.Module):
    """A network behind a step that has no gradient."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(torch.round(x * 4) / 4)


@pytest.mark.filterwarnings("ignore:.*predicts nothing")  # what the ensemble says, too
@pytest.mark.parametrize("method", ["pgd:steps=5", "rk-14"])
def test_gradients_that_are_zero_are_not_taken_for_robustness(method):
    made = problem("cnn", 1, 8, 8)
    with pytest.warns(UserWarning, match="exactly zero"):
        result = attack(Rounded(made.model), made.x, made.y, method, eps=0.01)

    assert result.zero_gradients.any()
    assert not (result.zero_gradients & result.success).any()
    assert result.to_frame()["zero_gradients"].tolist() == result.zero_gradients.tolist()


def test_attacks_without_gradients_have_none_that_are_zero():
    made = problem("cnn", 1, 8, 8)
    result = attack(Rounded(made.model), made.x, made.y, "square:queries=5", eps=0.01)

    assert not result.zero_gradients.any()


def test_images_of_half_precision_are_attacked_in_the_models():
    made = problem("mlp", 1, 8, 8)
    x = made.x.half()
    result = attack(made.model, x, made.model(x.float()).argmax(1), SHORT)

    assert result.clean_accuracy == 1
    assert (SHORT.ball.distance(x, result.x_adv) <= 0.03).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"y": torch.full((12,), 4)}, "Label 4 of image 0"),
        ({"y": torch.zeros(12)}, "whole numbers"),
        ({"y": torch.zeros(11, dtype=torch.int64)}, "12 whole numbers"),
        ({"x": torch.zeros(0, 1, 8, 8), "y": torch.zeros(0, dtype=torch.int64)}, "no images"),
        ({"x": torch.zeros(12, 1, 8, 8, dtype=torch.uint8)}, "divide by 255"),
        ({"x": 255 * images(12, 1, 8, 8)}, "declare their bounds"),
        ({"x": torch.zeros(1, 8, 8), "y": torch.tensor(3)}, r"give x\[None\] and y\[None\]"),
        ({"batch_size": 0}, "at least 1"),
        ({"bounds": (0, float("inf"))}, "bounds must be .* finite"),
        ({"target": torch.full((12,), 9)}, "Target 9"),
        ({"target": problem("mlp", 1, 8, 8).y}, "target equals the true class"),
    ],
)
def test_bad_arguments_are_refused_with_the_fix(change, sentence):
    made = problem("mlp", 1, 8, 8)
    arguments = {"x": made.x, "y": made.y, **change}

    with pytest.raises(UserError, match=sentence):
        attack(made.model, method=SHORT, **arguments)


@pytest.mark.parametrize("eps", [[0.1], (0.1, 0.2), torch.tensor([0.1, 0.2])])
def test_several_radii_are_refused_with_the_function_that_takes_them(eps):
    made = problem("mlp", 1, 8, 8)

    with pytest.raises(UserError, match=r"eps is one radius, .*; robustkit.evaluate takes several"):
        attack(made.model, made.x, made.y, "pgd", eps=eps)


def test_more_queries_keep_the_images_that_fewer_queries_broke():
    # A larger budget never loses an image that a smaller one with the same start has broken.
    made = problem("cnn", 1, 8, 8, count=30)
    few, many = (attack(made.model, made.x, made.y, Noise(0.05, queries=queries)) for queries in (10, 40))

    assert (many.success | ~few.success).all()
    assert torch.equal(few.x_adv[few.success], many.x_adv[few.success])


@pytest.mark.parametrize("numbers", [[1] * 12, range(11), range(13), [0, *range(11)]])
def test_numbers_that_do_not_tell_the_images_apart_are_refused(numbers):
    made = problem("cnn", 1, 8, 8)

    with pytest.raises(UserError, match="different numbers"):
        attack(made.model, made.x, made.y, SHORT, numbers=numbers)


def test_the_callers_label_type_does_not_matter():
    made = problem("mlp", 1, 8, 8)
    results = [attack(made.model, made.x, made.y.to(kind), SHORT) for kind in (torch.int64, torch.int32, torch.uint8)]

    assert torch.equal(results[0].x_adv, results[1].x_adv)
    assert torch.equal(results[0].x_adv, results[2].x_adv)
