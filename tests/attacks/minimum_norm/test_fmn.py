import pytest
import torch
from robustkit.attacks import FMN
from robustkit.attacks.minimum_norm._projections import projected
from torch import Tensor, nn

from robustkit.primitives.registry import build
from tests.attacks.driving import last_state, nearest_of_all_classes, towards, untargeted
from tests.attacks.linear import linear, scaled, sparse_linear
from tests.problems import images

NORMS = ["L2", "Linf", "L1"]


@pytest.mark.parametrize("norm", NORMS)
def test_trials_aimed_at_each_class_find_the_nearest_error_of_a_linear_classifier(norm):
    made = linear(5, count=20)
    distance = nearest_of_all_classes(FMN(1, norm, steps=40), made.model, made.x, made.y, 5)

    assert torch.allclose(distance, made.distance[norm].double(), rtol=0.01, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_an_untargeted_trial_crosses_the_boundary_of_a_linear_classifier(norm):
    # The paper's radius ends exactly at a linear boundary, where adv-lib and foolbox find no error however many steps.
    made = linear(2)
    state = last_state(FMN(1, norm, steps=20), made.model, untargeted(made.x, made.y))

    assert state.distance.isfinite().all()


class Ridge(nn.Module):
    """The margin has a maximum near the image that is no error, and errors lie beyond a mean grey of 0.8."""

    def forward(self, x: Tensor) -> Tensor:
        grey = x.flatten(1).mean(1)
        margin = torch.maximum(-0.1 - 5 * (grey - 0.55).abs(), 20 * (grey - 0.8))
        return torch.stack([torch.zeros_like(margin), margin], 1)


@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_a_maximum_of_the_margin_inside_of_the_ball_holds_no_trial(norm):
    # On trades_mnist 8 of 48 images stayed at such a point in L2 for all 100 steps.
    x = torch.full((1, 1, 4, 4), 0.5)
    state = last_state(FMN(1, norm), Ridge(), untargeted(x, torch.tensor([0])))

    assert state.distance.isfinite().all()


def test_the_fewest_values_of_a_linear_classifier_are_changed():
    made = sparse_linear(3)
    state = last_state(FMN(1, "L0"), made.model, untargeted(made.x, made.y))

    assert (state.distance - made.fewest).abs().max() <= 1
    assert (state.distance == made.fewest).double().mean() > 0.9


@pytest.mark.parametrize("norm", ["L2", "Linf", "L1", "L0"])
def test_a_projection_leaves_a_point_inside_of_the_ball_where_it_is(norm):
    # adv-lib scales L2 changes up to the radius, so that a change of length 0.1 becomes one of length 1.
    x = images(3, 2, 5, 5)
    point = x + 0.01 * (images(3, 2, 5, 5, seed=1) - 0.5)
    inside = projected(norm, x, point.clamp(0, 1), torch.full((3,), 60.0, dtype=torch.float64))

    assert torch.allclose(inside, point.clamp(0, 1), atol=1e-7)


def test_a_projection_on_an_l0_ball_breaks_ties():
    # adv-lib and foolbox keep all values that equal the smallest one kept.
    x = torch.zeros(2, 6)
    sparse = projected("L0", x, torch.ones(2, 6), torch.tensor([2.0, 4.0]))

    assert sparse.sum(1).tolist() == [2, 4]


@pytest.mark.parametrize("norm", ["L2", "Linf", "L1", "L0"])
def test_the_scale_of_the_logits_changes_nothing(norm):
    made = linear(5)
    plain, louder = (
        last_state(FMN(1, norm, steps=30), model, untargeted(made.x, made.y))
        for model in (made.model, scaled(made, 64))
    )

    assert torch.allclose(plain.distance, louder.distance, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_a_target_is_reached_although_other_classes_are_in_front(norm):
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(FMN(1, norm), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()


def test_the_default_budget_is_the_papers():
    # adv-lib takes 10 steps unless told otherwise.
    assert build("fmn", "L2", 1).steps >= 100


@pytest.mark.parametrize(("norm", "order"), [("L2", 2.0), ("Linf", torch.inf), ("L1", 1.0), ("L0", 0.0)])
def test_a_projection_brings_a_point_outside_of_the_ball_to_its_surface(norm, order):
    # foolbox divides the L2 length by itself and leaves every point where it is.
    x = torch.full((3, 10), 0.5)
    point = images(3, 10, seed=1)
    radius = torch.tensor([1.0, 2.0, 3.0] if norm == "L0" else [0.05, 0.1, 0.2], dtype=torch.float64)
    length = (projected(norm, x, point, radius) - x).norm(p=order, dim=1)

    assert torch.allclose(length.double(), radius, rtol=1e-5)
