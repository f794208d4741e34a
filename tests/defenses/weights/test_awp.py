"""The adversarial perturbation of the weights."""

import pytest
import torch
from robustkit.defenses.weights.awp import perturbed
from torch.nn import functional as F

from robustkit import UserError
from tests.defenses.nets import SHORT, batch, changed, net, same_weights, state, stepper


def gradients(network, images):
    loss = F.cross_entropy(network(images.x), images.y)
    return list(torch.autograd.grad(loss, list(network.parameters())))


def test_each_layer_moves_up_its_gradient_by_a_share_of_its_norm():
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


@pytest.mark.parametrize("size", [0.01, 5.0])
def test_weights_without_a_gradient_stay_and_tiny_gradients_move_as_far_as_others(size):
    # The first became NaN, the second moved 1e13 times as far: the squares of such gradients are zero in fp32.
    weights = [torch.nn.Parameter(torch.full((2, 2), 3.0)) for _ in range(3)]
    grads = [torch.zeros(2, 2), torch.full((2, 2), 1e-24), torch.full((2, 2), 1e24)]

    with perturbed(weights, grads, size):
        moves = [float((weight.detach() - 3).norm() / 6) for weight in weights]

    assert moves == [0, pytest.approx(size), pytest.approx(size)]


def test_the_weights_are_restored_to_the_bit_also_after_an_exception():
    network = net()
    before = state(network)

    def fail_inside() -> None:
        with perturbed(list(network.parameters()), gradients(network, batch()), 0.5):
            assert changed(network, before)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert changed(network, before) == set()


def test_a_step_of_the_optimizer_inside_is_refused_since_it_is_undone():
    # Only biases and BatchNorm learned, silently. The authors' code takes the step where ours would lose it.
    network = net()
    weights, optimizer = list(network.parameters()), torch.optim.SGD(network.parameters(), 0.1)
    grads = gradients(network, batch())

    def step_inside() -> None:
        with perturbed(weights, grads, 0.01):
            F.cross_entropy(network(batch().x), batch().y).backward()
            optimizer.step()

    with pytest.raises(UserError, match="optimizer's step after"):
        step_inside()


def test_perturbations_can_be_nested():
    network = net()
    before, weights = state(network), list(network.parameters())

    with perturbed(weights, gradients(network, batch()), 0.01):
        outer = state(network)
        with perturbed(weights, gradients(network, batch()), 0.01):
            assert changed(network, outer)
        assert not changed(network, outer)
    assert not changed(network, before)


def test_the_loss_is_higher_at_the_perturbed_weights_and_statistics_move_once():
    plain, perturbed_net = net(), net()

    first = stepper(plain).step([batch(0, 32)], 1.0)
    second = stepper(perturbed_net, SHORT.but(awp=0.01)).step([batch(0, 32)], 1.0)

    assert second.loss > first.loss + 1e-3
    assert not same_weights(plain, perturbed_net)
    expected = net().bn1.num_batches_tracked + 1
    assert perturbed_net.bn1.num_batches_tracked == plain.bn1.num_batches_tracked == expected


@pytest.mark.parametrize("objective", ["clean", "at", "trades:6", "mart:5"])
def test_a_step_applies_the_gradient_at_the_perturbed_weights_to_the_old_weights(objective):
    recipe = SHORT.but(objective=objective, awp=0.02, attack="pgd:steps=1,random_start=yes")
    images, taker, reference = batch(0, 32), stepper(net(), recipe), stepper(net(), recipe)
    part = reference.learner.part(images, reference.adversarial(images, 1.0), images.size)
    weights = reference.learning_weights()

    with perturbed(weights, torch.autograd.grad(reference.batch_loss(part).loss, weights), 0.02):
        grads = torch.autograd.grad(reference.batch_loss(part).loss, weights)
    taker.step([images], 1.0)

    for weight, old, grad in zip(taker.learning_weights(), weights, grads, strict=True):
        torch.testing.assert_close(weight.detach(), old.detach() - recipe.lr * grad, atol=1e-5, rtol=1e-4)
