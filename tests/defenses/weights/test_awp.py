"""The weights' own adversary."""

import pytest
import torch
from robustkit.defenses.weights.awp import perturbed
from torch.nn import functional as F

from tests.defenses.nets import SHORT, batch, changed, net, state, stepper


def gradients(network, images):
    loss = F.cross_entropy(network(images.x), images.y)
    return list(torch.autograd.grad(loss, list(network.parameters())))


def test_each_layer_moves_up_its_gradient_by_a_share_of_its_length():
    network = net()
    weights, before = list(network.parameters()), [weight.detach().clone() for weight in network.parameters()]
    grads = gradients(network, batch())

    with perturbed(weights, grads, 0.01):
        moves = [weight.detach() - old for weight, old in zip(weights, before, strict=True)]

    for move, old, grad in zip(moves, before, grads, strict=True):
        if old.dim() > 1:
            assert move.norm() / old.norm() == pytest.approx(0.01, rel=1e-3)
            assert F.cosine_similarity(move.flatten(), grad.flatten(), 0) > 0.999
        else:
            assert not move.any()


def test_the_weights_come_back_to_the_bit_also_after_an_exception():
    network = net()
    before = state(network)

    def moved() -> None:
        with perturbed(list(network.parameters()), gradients(network, batch()), 0.5):
            assert changed(network, before)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        moved()
    assert changed(network, before) == set()


def test_the_loss_is_higher_where_the_gradient_is_taken():
    plain, moved = net(), net()

    first = stepper(plain).step([batch(0, 32)], 1.0)
    second = stepper(moved, SHORT.but(awp=0.01)).step([batch(0, 32)], 1.0)

    assert second.loss > first.loss + 1e-3
    assert changed(plain, state(moved))


@pytest.mark.parametrize("objective", ["clean", "at", "trades:6", "mart:5"])
def test_a_step_is_the_gradient_at_the_perturbed_weights_taken_from_the_old_ones(objective):
    recipe = SHORT.but(objective=objective, awp=0.02, attack="pgd:steps=1,random_start=yes")
    network, images = net(), batch(0, 32)
    found = stepper(net().train(), recipe)
    x_adv = found.adversarial(images, 1.0)
    found.network.train()

    def loss(model):
        return found.goal.loss(model, images.x, x_adv, images.y, 0.0)

    network.train()
    weights = list(network.parameters())
    old = [weight.detach().clone() for weight in weights]
    with perturbed(weights, torch.autograd.grad(loss(network), weights), 0.02):
        grads = torch.autograd.grad(loss(network), weights)
    found.step([images], 1.0)

    for weight, value, grad in zip(found.network.parameters(), old, grads, strict=True):
        torch.testing.assert_close(weight.detach(), value - recipe.lr * grad, atol=1e-5, rtol=1e-4)


def test_running_statistics_are_moved_once_a_step():
    once, twice = net(), net()
    stepper(once).step([batch()], 1.0)
    stepper(twice, SHORT.but(awp=0.01)).step([batch()], 1.0)

    assert twice.bn1.num_batches_tracked == once.bn1.num_batches_tracked == net().bn1.num_batches_tracked + 1
