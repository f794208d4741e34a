"""One query to a network under an attack's own hooks, without engine or classifier."""

import torch
from torch import Tensor, nn

from robustkit.primitives.protocol import Attack, FeatureAttack, FeatureSeen, HookedAttack, State
from tests.problems import trials


def gradient(attack: HookedAttack, network: nn.Module, x: Tensor, y: Tensor | None = None) -> Tensor:
    """The input gradient that the attack sees at `x`."""
    return logits_and_gradient(attack, network, attack.init(trials(x, y)))[1]


def logits_and_gradient(attack: HookedAttack, network: nn.Module, state: State) -> tuple[Tensor, Tensor]:
    """What the attack sees at `state.query`."""
    query = state.query.clone().requires_grad_()
    with attack.hooks(network, state):
        logits = network(query)
        grad = torch.autograd.grad(attack.objective(logits, state.trial).sum(), query)[0]
    return logits.detach(), grad


def plain_gradient(attack: Attack, network: nn.Module, x: Tensor, y: Tensor | None = None) -> Tensor:
    """The same without hooks."""
    trial, query = trials(x, y), x.clone().requires_grad_()
    return torch.autograd.grad(attack.objective(network(query), trial).sum(), query)[0]


def answer(attack: FeatureAttack, below: nn.Module, above: nn.Module, state: State) -> FeatureSeen:
    """The answer of `above(below(x))` to an attack on the output of `below`."""
    query = state.query.clone().requires_grad_()
    features = below(query)
    logits = above(features)
    loss = attack.feature_objective(logits, features, state)
    grads = torch.autograd.grad(loss.sum(), [query, features], allow_unused=True)
    parts = (logits, loss, grads[0], features, torch.zeros_like(features) if grads[1] is None else grads[1])
    return FeatureSeen(logits.argmax(1), *(part.detach() for part in parts))
