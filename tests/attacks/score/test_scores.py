"""What all attacks by random search or estimated gradients on the margin have in common."""

from itertools import pairwise

import pytest
import torch
from robustkit.attacks import NES, SPSA, SignHunter, SimBA, SparseRS, Square
from torch import nn

from robustkit import attack
from tests.attacks.score.driven import states
from tests.problems import problem, trials

RADII = {"Linf": 0.05, "L2": 0.3, "L1": 1.5, "L0": 3.0, "patch": 2.0, "frame": 1.0}
CASES = [(kind, norm) for kind in (NES, SPSA, SignHunter, SimBA, SparseRS, Square) for norm in kind.norms]
every_search = pytest.mark.parametrize(("kind", "norm"), CASES, ids=[f"{kind.__name__}-{norm}" for kind, norm in CASES])
# The norm has no part in how losses are compared.
every_kind = pytest.mark.parametrize(
    ("kind", "norm"),
    [pytest.param(kind, norm, marks=() if norm == kind.norms[0] else pytest.mark.slow, id=f"{kind.__name__}-{norm}")
     for kind, norm in CASES],
)  # fmt: skip


class Confident(nn.Module):
    """A network whose softmax is 0 and 1 in every bit."""

    def __init__(self, network: nn.Module, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x) * self.factor


@every_kind
def test_the_scale_of_the_logits_does_not_matter(kind, norm):
    # ART's SimBA compares probabilities: on confident networks they are all 1, and nothing ever helps.
    made, method = problem("mlp", 1, 8, 8), kind(RADII[norm], norm, queries=16)
    plain, small, large = (
        attack(Confident(made.model, factor), made.x, made.y, method).x_adv for factor in (1, 2.0**-20, 2.0**20)
    )

    assert torch.equal(plain, small)
    assert torch.equal(plain, large)


@every_kind
def test_more_queries_never_break_fewer_images(kind, norm):
    made, method = problem("cnn", 1, 8, 8), kind(RADII[norm], norm, queries=60)
    best = [state.best_loss for state in states(method, made.model, trials(made.x, made.y))]

    assert all((later >= sooner).all() for sooner, later in pairwise(best))
    assert best[-1].median() > best[2].median()


@every_search
def test_the_best_point_has_the_loss_that_is_said_and_lies_in_the_ball(kind, norm):
    made, method = problem("cnn", 1, 8, 8), kind(RADII[norm], norm, queries=40)
    trial = trials(made.x, made.y)
    *_, last = states(method, made.model, trial)

    assert torch.allclose(method.objective(made.model(last.best), trial), last.best_loss, atol=1e-6)
    assert method.ball.contains(made.x, last.best).all()


@every_search
def test_every_query_is_an_image(kind, norm):
    # Peers query points outside of the range of pixels, which no service would accept.
    made, method = problem("cnn", 1, 8, 8), kind(RADII[norm], norm, queries=40)
    for state in states(method, made.model, trials(made.x, made.y)):
        assert state.query.min() >= 0
        assert state.query.max() <= 1
