import pytest
import torch
from robustkit.attacks import BrendelBethge
from robustkit.attacks.minimum_norm._trust_region import step_along_boundary
from scipy.optimize import minimize

from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import linear, sparse_linear

NORMS = ["L2", "Linf", "L1"]


def test_the_second_walk_finds_the_class_that_the_first_one_missed():
    # With one walk, from noise, seven of these images ended at the boundary of a farther class.
    made = linear(5, count=20)
    state = last_state(BrendelBethge(1, "L2", steps=24, radius=0.03), made.model, untargeted(made.x, made.y))

    assert torch.allclose(state.distance, made.distance["L2"].double(), rtol=0.01)


def test_fewer_steps_are_longer_so_that_the_walk_is_not_shorter():
    # With a radius of 1e-3 whatever the number of steps, 100 of them ended far from the image.
    made = linear(2, count=5)
    ends = [
        last_state(BrendelBethge(1, "L2", steps=20, **radius), made.model, untargeted(made.x, made.y)).query
        for radius in ({}, {"radius": 1 / 10}, {"radius": 1e-3})  # each of two walks has ten steps
    ]

    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_a_target_is_reached_although_other_classes_are_in_front():
    made = linear(5, count=5)
    target = (made.y + 1) % 5
    state = last_state(BrendelBethge(1, "L2", steps=20, radius=0.03), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("radius", [0.3, 9.0])
def test_a_step_is_as_good_as_that_of_a_general_solver(norm, radius):
    x, point, normal = torch.rand(3, 5, 8, generator=torch.Generator().manual_seed(0))
    normal = normal * 2 - 1
    rise = torch.full((5,), 0.1)
    end = step_along_boundary(norm, x, point, normal, rise, torch.full((5,), radius))
    best = torch.tensor([solved(norm, *row, 0.1, radius) for row in zip(x, point, normal, strict=True)])
    distance = (end - x).norm(p={"L2": 2.0, "Linf": torch.inf, "L1": 1.0}[norm], dim=1)

    assert ((normal * (end - point)).sum(1) >= rise - 1e-6).all()
    assert ((end - point).norm(dim=1) <= radius * (1 + 1e-6)).all()
    shorter = {"L2": 1.0, "Linf": 1.0, "L1": 8**0.5}[norm] * 0.1 * radius  # a step may be by a tenth of the radius
    assert (distance <= best + (shorter if radius < 1 else 2e-3)).all()


def solved(norm, x, point, normal, rise, radius):
    """The least distance; in Linf and L1 with bounds of all changes as further variables."""
    x, point, normal = x.double().numpy(), point.double().numpy(), normal.double().numpy()
    size = len(x)
    bounds = {"L2": [], "Linf": [1.0], "L1": [1.0] * size}[norm]
    constraints = [
        lambda v: normal @ (v[:size] - point) - rise,
        lambda v: radius**2 - ((v[:size] - point) ** 2).sum(),
    ]
    if bounds:
        constraints += [lambda v: v[size:] - (v[:size] - x), lambda v: v[size:] + (v[:size] - x)]
    found = minimize(
        (lambda v: v[size:].sum()) if bounds else (lambda v: ((v - x) ** 2).sum()),
        [*point, *bounds], bounds=[(0, 1)] * (size + len(bounds)), method="SLSQP",
        constraints=[{"type": "ineq", "fun": each} for each in constraints],
    )  # fmt: skip
    return found.fun if bounds else max(found.fun, 0.0) ** 0.5


def test_few_values_are_changed_in_l0():
    made = sparse_linear(2, count=10)
    state = last_state(BrendelBethge(1, "L0", steps=8), made.model, untargeted(made.x, made.y))

    assert (state.distance >= made.fewest).all()
    assert state.distance.median() <= 8  # of 40; the steps are bounded in L2, and the fewest values change the most


@pytest.mark.slow
def test_more_steps_in_l0_are_not_so_short_that_no_value_is_exchanged_for_another():
    # Steps that began at 0.8 ended at up to seven changed values where one is enough.
    made = sparse_linear(2, count=10)
    state = last_state(BrendelBethge(1, "L0", steps=100), made.model, untargeted(made.x, made.y))

    assert (state.distance <= made.fewest + 1).all()


def test_a_step_in_l0_crosses_the_boundary_within_the_radius_and_brings_values_back():
    x, point, normal = torch.rand(3, 5, 30, generator=torch.Generator().manual_seed(0))
    normal = normal * 2 - 1
    end = step_along_boundary("L0", x, point, normal, torch.full((5,), 0.1), torch.full((5,), 1.0))

    assert ((normal * (end - point)).sum(1) >= 0.1 - 1e-6).all()
    assert ((end - point).norm(dim=1) <= 1 + 1e-6).all()
    assert ((end == x).sum(1) >= 3).all()


@pytest.mark.parametrize("norm", NORMS)
def test_a_boundary_out_of_reach_is_approached_as_far_as_the_radius_allows(norm):
    x = torch.full((1, 4), 0.5)
    normal = torch.tensor([[3.0, 4.0, 0.0, 0.0]])
    end = step_along_boundary(norm, x, x, normal, torch.tensor([9.0]), torch.tensor([0.1]))

    assert torch.allclose(end, torch.tensor([[0.56, 0.58, 0.5, 0.5]]), atol=1e-5)
