from dataclasses import replace

import pytest
import torch
from robustkit.attacks import PMA
from torch.nn import functional as F

from tests.problems import trials


def directions(queries: int, restart: int, logits: torch.Tensor) -> torch.Tensor:
    method = PMA(0.1)
    state = method.init(trials(torch.full((len(logits), 4), 0.5)))
    trial = replace(state.trial, restart=torch.full((len(logits),), restart))
    z = logits.clone().requires_grad_()
    loss = method.objective_at(z, replace(state, trial=trial, queries=torch.full((len(logits),), queries)))
    return F.normalize(torch.autograd.grad(loss.sum(), z)[0])


@pytest.mark.parametrize(
    ("queries", "restart", "published"),
    [
        (0, 0, lambda p: p[:, 0]),
        (1, 0, lambda p: -p[:, 0]),
        (49, 1, lambda p: p[:, 1:].amax(1)),
        (50, 0, lambda p: p[:, 1:].amax(1) - p[:, 0]),
        (99, 1, lambda p: p[:, 1:].amax(1) - p[:, 0]),
    ],
)
def test_each_stage_climbs_in_the_direction_of_its_probabilities(queries, restart, published):
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = logits.clone().requires_grad_()
    expected = F.normalize(torch.autograd.grad(published(z.softmax(1)).sum(), z)[0])

    assert torch.allclose(directions(queries, restart, logits), expected)


@pytest.mark.parametrize(("queries", "restart"), [(1, 0), (1, 1), (60, 0)])
def test_no_stage_loses_its_gradient_on_a_confident_model(queries, restart):
    # The probabilities of these logits are 1, 0 and 0 in fp32.
    assert directions(queries, restart, torch.tensor([[200.0, 0.0, 1.0]])).abs().max() > 0.1
