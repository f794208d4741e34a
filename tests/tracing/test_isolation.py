"""A trace restores the model and the random state and keeps foreign hooks, also after an error."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from robustkit import Classifier
from robustkit.nethook import leftover_hooks
from robustkit.tracing import trace
from robustkit.tracing.passes import Runner
from robustkit.tracing.points import Pairs
from robustkit.tracing.propagation import rival_margin
from tests.tracing.nets import Breaks, Twice, built


def states(model: nn.Module) -> dict[str, object]:
    return {
        "weights": copy.deepcopy(model.state_dict()),
        "modes": [module.training for module in model.modules()],
        "grads": [weight.grad for weight in model.parameters()],
        "asks": [weight.requires_grad for weight in model.parameters()],
        "hooks": [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()],
        "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),
        "python": random.getstate(),
    }


def equal(one: dict[str, object], other: dict[str, object]) -> bool:
    weights = one.pop("weights"), other.pop("weights")
    return one == other and all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_logits_are_the_same_bits_under_the_trace():
    model, x, _, y = built(Twice(), 6, count=16)
    classifier = Classifier(model)
    score = rival_margin(Pairs(y, x, x, y, y, (y + 1) % 3))
    with torch.no_grad():
        plain = model(x)
    with classifier.session(x):
        traced = Runner(classifier, 0).run(["first", "relu", "second", "head"], x, score)

    assert torch.equal(traced.logits, plain)


@pytest.mark.parametrize("after", range(3, 12))
def test_the_model_is_restored_when_it_fails(after):
    model, x, x_adv, y = built(nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)), 6)
    breaks = Breaks(after)
    whole = nn.Sequential(model[:2], breaks, model[2:]).train()
    foreign = whole[0].register_forward_hook(lambda *_: None)
    before = states(whole)
    try:
        trace(whole, x, y, x_adv=x_adv)
        done = True
    except RuntimeError as error:
        done = "injected" not in str(error)

    # So many calls a whole trace makes; before that every place of a failure is met.
    assert done == (breaks.left >= 0)
    assert equal(before, states(whole))
    foreign.remove()
    assert not leftover_hooks(whole)
