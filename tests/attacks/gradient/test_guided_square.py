import pytest
import torch
from robustkit.attacks import GuidedSquare
from torch import nn

from robustkit.classifier.answers import answered
from robustkit.primitives.protocol import Trials
from tests.problems import images


def trials(x):
    none = torch.full((len(x),), -1)
    return Trials(x, torch.zeros_like(none), none, none, torch.arange(len(x)), torch.zeros_like(none))


def linear(values, seed=0):
    layer = nn.Linear(values, 2)
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(seed))
    return nn.Sequential(nn.Flatten(), layer)


def losses(method, model, x):
    """The objective at every query, `[queries, B]`."""
    state, seen = method.init(trials(x)), []
    while not state.done.all():
        answer = answered(method, state, model)
        seen.append(answer.loss)
        state = method.step(state, answer)
    return torch.stack(seen)


def test_on_a_linear_model_hardly_any_window_is_tried_that_lowers_the_loss():
    # There the gradient predicts each change exactly; Square, which draws one window, lowers the loss every other time.
    x = 0.25 + images(12, 1, 8, 8) / 2
    guided, blind = (losses(GuidedSquare(0.1, steps=40, ascent=0, candidates=count), linear(64), x)
                     for count in (16, 1))  # fmt: skip

    def lowered(values):
        # Later on windows are small, and many of them cannot raise a loss that is near its maximum.
        return (values[1:12] < values.cummax(0).values[:11]).float().mean()

    assert lowered(guided) < 0.2 < 0.4 < lowered(blind)


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.5), ("L1", 1.0)])
def test_every_norm_raises_the_loss_on_every_image(norm, eps):
    x = 0.25 + images(6, 1, 8, 8) / 2
    values = losses(GuidedSquare(eps, norm, steps=60), linear(64), x)

    assert (values.amax(0) > values[0]).all()


def test_the_first_steps_are_a_steepest_ascent_whose_steps_shrink():
    x = torch.full((1, 1, 8, 8), 0.5)
    method = GuidedSquare(0.1, steps=30, ascent=20)
    state, moved = method.init(trials(x)), []
    model = linear(64)
    for _ in range(20):
        after = method.step(state, answered(method, state, model))
        moved.append((after.query - state.query).abs().amax().item())
        state = after

    # From a random start the first step of length eps, and at most the diameter, ends in the optimal corner.
    assert moved[0] > 0.1
    assert max(moved[3:]) < 1e-6


def test_without_slope_windows_are_drawn_all_the_same():
    x = 0.25 + images(4, 1, 6, 6) / 2
    method = GuidedSquare(0.1, steps=40, ascent=0)
    state, seen = method.init(trials(x)), []
    flat = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    nn.init.zeros_(flat[1].weight)
    while not state.done.all():
        seen.append(state.query)
        state = method.step(state, answered(method, state, flat))

    assert all((query != seen[0]).flatten(1).any(1).all() for query in seen[1:])
