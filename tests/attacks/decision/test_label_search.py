"""What all attacks that look for the nearest error by labels have in common."""

from functools import cache

import pytest
import torch
from robustkit.attacks import GeoDA, HopSkipJump, RayS, SignOPT
from robustkit.attacks.decision._label_search import LabelAttack, between, random_start
from torch import nn

from robustkit import attack
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.registry import classes
from tests.attacks.decision.driven import aimed, driven
from tests.attacks.linear import linear
from tests.problems import images, problem

CASES = [(kind, norm) for kind in classes().values() if issubclass(kind, LabelAttack) for norm in kind.norms]


def searches(slow: tuple[tuple[type[LabelAttack], str], ...] = ()) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("kind", "norm"),
        [pytest.param(*case, marks=pytest.mark.slow if case in slow else (), id=f"{case[0].__name__}-{case[1]}")
         for case in CASES],
    )  # fmt: skip


every_search = searches()
# What the norm has no part in is tested in one of them.
every_kind = searches(slow=((GeoDA, "Linf"), (GeoDA, "L1"), (HopSkipJump, "Linf")))


class Distorted(nn.Module):
    """Logits that order the classes alike and are otherwise others."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x).double().exp()


@cache
def on_a_network(kind: type[LabelAttack], norm: str, queries: int) -> NearestState:
    made = problem("cnn", 1, 8, 8)
    return driven(kind(0.1, norm, queries=queries), made.model, aimed(made.x, made.y))


@cache
def with_a_small_radius(kind: type[LabelAttack], norm: str) -> NearestState:
    made = problem("mlp", 12)
    return driven(kind(0.001, norm, queries=40), made.model, aimed(made.x, made.y))


@every_search
def test_the_point_that_is_kept_is_an_error_at_the_distance_that_is_said(kind, norm):
    # Foolbox's issue 243: its boundary attack returned points that are no errors.
    made = problem("cnn", 1, 8, 8)
    state = on_a_network(kind, norm, 60)

    assert state.distance.isfinite().all()
    assert torch.equal(state.distance, kind(0.1, norm).ball.distance(made.x, state.nearest))
    assert torch.equal(state.query, state.nearest)
    with torch.no_grad():
        assert (made.model(state.nearest).argmax(1) != made.y).all()


@every_search
def test_more_queries_never_lead_further_away(kind, norm):
    # Sign-OPT takes 200 samples before its first step; RayS is near after its first queries.
    enough = {SignOPT: 240, RayS: 180}.get(kind, 120)
    less, more = (on_a_network(kind, norm, queries).distance for queries in (60, enough))

    # GeoDA spreads its whole budget over its steps, so a larger one is another search.
    assert kind is GeoDA or (more <= less).all()
    assert more.median() < 0.9 * less.median()


@every_kind
def test_only_the_order_of_the_logits_matters(kind, norm):
    made = problem("mlp", 12)
    distorted = driven(kind(0.001, norm, queries=40), Distorted(made.model), aimed(made.x, made.y))

    assert torch.equal(distorted.nearest, with_a_small_radius(kind, norm).nearest)


@every_kind
def test_the_radius_does_not_lead_the_search(kind, norm):
    made = problem("mlp", 12)
    large = driven(kind(1, norm, queries=40), made.model, aimed(made.x, made.y))

    assert torch.equal(with_a_small_radius(kind, norm).nearest, large.nearest)


@every_search
def test_a_targeted_search_keeps_errors_of_the_target_class_alone(kind, norm):
    made = linear(3, count=20)
    target = (made.y + 1) % 3
    state = driven(kind(0.1, norm, queries=60), made.model, aimed(made.x, made.y, target))
    reached = state.distance.isfinite()

    assert reached.float().mean() > 0.5
    assert torch.equal(made.model(state.nearest).argmax(1)[reached], target[reached])


@every_kind
def test_a_search_without_any_error_ends_and_says_so(kind, norm):
    x = images(3, 2, 5, 5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(50, 3))
    with torch.no_grad():
        model[1].bias.copy_(torch.tensor([100.0, 0.0, 0.0]))
    state = driven(kind(0.1, norm, queries=40), model, aimed(x, torch.zeros(3, dtype=torch.int64)))

    assert state.distance.isinf().all()
    assert state.queries.tolist() == [39] * 3


@every_kind
def test_an_image_costs_exactly_its_queries_whatever_the_others_need(kind, norm):
    # Foolbox halves the step of a whole batch until that of its slowest image leads to an error.
    made = problem("mlp", 12)
    result = attack(made.model, made.x, made.y, kind(1e-6, norm, queries=50))

    assert set(result.forwards.tolist()) == {1 + 50}


def test_the_first_start_is_uniform_noise_and_later_ones_have_every_contrast():
    x, key = torch.full((400, 64), 0.5), torch.arange(400)
    first, later = (random_start(x, key, torch.full((400,), draw)) for draw in (0, 1))

    assert first.std(1).min() > 0.2
    assert first.min() >= 0
    assert later.std(1).min() < 0.02
    assert later.std(1).max() > 0.2
    assert (later.min(), later.max()) > (0, 0)
    assert later.max() <= 1


@pytest.mark.parametrize("norm", ["L2", "Linf"])
def test_the_way_to_an_error_ends_exactly_at_it(norm):
    x, end = images(5, 7), images(5, 7, seed=1)
    point = between(norm, x, end, torch.full((5,), 0.25, dtype=torch.float64))
    full = (end - x).norm(p=float(norm[1:]), dim=1)

    assert torch.equal(between(norm, x, end, torch.ones(5, dtype=torch.float64)), end)
    assert torch.allclose((point - x).norm(p=float(norm[1:]), dim=1), full / 4)


def test_an_error_is_found_where_uniform_noise_has_one_class():
    # The two boundaries of this network leave 1 % of uniform noise to the rarer class.
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)).eval()
    x = torch.rand(6, 1, 8, 8)
    starts = torch.arange(400)
    points = random_start(torch.zeros(400, 1, 8, 8), torch.full((400,), 7), starts)
    with torch.no_grad():
        y, guessed = network(x - 0.5).argmax(1), network(points - 0.5).argmax(1)

    assert 4 <= (guessed != guessed.mode().values).sum() <= 60
    assert ((points >= 0) & (points <= 1)).all()
    shifted = nn.Sequential(_Shifted(), network)
    assert attack(shifted, x, y, "surfree:queries=100", norm="L2", eps="minimum").success.all()


class _Shifted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - 0.5
