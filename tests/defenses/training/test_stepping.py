"""One step of the optimizer."""

import copy

import pytest
import torch
from robustkit.defenses import Diverged
from robustkit.defenses.inner_attack.crafting import noise_keys
from robustkit.defenses.training.batches import Batch
from torch import nn
from torch.nn import functional as F

from robustkit.classifier.isolation import exact_arithmetic
from robustkit.models.preprocessing import Normalised
from tests.defenses.doubles import Wrapped, head
from tests.defenses.nets import SHORT, batch, changed, digits, net, state, stepper
from tests.small import linear

CLEAN = SHORT.but(objective="clean")


def no_norms() -> nn.Module:
    """A network without BatchNorm."""
    network = linear()
    with torch.no_grad():
        network[1].weight.mul_(0.05)
    return network


@pytest.mark.parametrize("objective", ["at", "trades:6", "clean"])
def test_accumulated_batches_are_one_large_batch(objective):
    recipe = SHORT.but(objective=objective, clip=0.5, prior="gaussian:decay=0.01")
    one, other = no_norms(), no_norms()

    first = stepper(one, recipe).step([batch(0, 40)], 1.0)
    second = stepper(other, recipe).step([batch(0, 16), batch(16, 16), batch(32, 8)], 1.0)

    for weight, other_weight in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(weight, other_weight, atol=1e-6, rtol=1e-5)
    assert first.loss == pytest.approx(second.loss, rel=1e-5)
    assert (first.correct, first.images) == (second.correct, second.images)


def test_label_smoothing_works_with_preprocessing():
    model = Normalised(net(), [0.3], [0.4])
    expected = F.cross_entropy(copy.deepcopy(model).train()(batch().x), batch().y, label_smoothing=0.1)

    report = stepper(model, CLEAN.but(label_smoothing=0.1)).step([batch()], 1.0)

    assert report.loss == pytest.approx(expected.item(), rel=1e-6)


def test_a_step_learns_in_train_mode():
    network = net()
    before = state(network)
    stepper(network).step([batch()], 1.0)

    assert {"bn1.running_mean", "bn1.num_batches_tracked", "conv1.weight", "fc.bias"} <= changed(network, before)


def test_the_norm_of_the_gradient_is_clipped():
    network = no_norms()
    before = [weight.detach().clone() for weight in network.parameters()]
    stepper(network, SHORT.but(clip=1e-3, lr=1.0)).step([batch()], 1.0)

    moved = [weight.detach() - old for weight, old in zip(network.parameters(), before, strict=True)]
    assert torch.cat([move.flatten() for move in moved]).norm() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_moves_no_weight(bad):
    network = no_norms()
    x = batch().x.clone()
    x[3, 0, 2, 2] = bad
    before = state(network)

    with pytest.raises(Diverged, match="lower lr"):
        stepper(network, CLEAN).step([batch(), batch()._replace(x=x)], 1.0)

    assert changed(network, before) == set()
    assert all(weight.grad is None for weight in network.parameters())


def test_a_gradient_that_is_not_finite_moves_no_weight():
    # Finite everywhere, with an infinite slope at 0.
    zero = nn.Parameter(torch.zeros(1))
    network = Wrapped(head(), after=lambda logits: logits + zero.abs().sqrt())
    network.register_parameter("zero", zero)
    before = state(network)

    with pytest.raises(Diverged, match="gradient"):
        stepper(network, CLEAN).step([batch()], 1.0)

    assert changed(network, before) == set()


def test_an_input_gradient_that_is_not_finite_is_named():
    with pytest.raises(Diverged, match="input gradient"):
        stepper(Wrapped(head(), before=lambda x: (x * 0).sqrt())).step([batch()], 1.0)


def test_free_training_carries_the_perturbation_over():
    eps, taker = 0.1, stepper(net(), SHORT.but(attack="free:2", lr=1e-9))
    x, y = digits(0, 16)

    def gradient(point):
        query = point.clone().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(copy.deepcopy(taker.network).train()(query), y), query)[0]

    change = torch.zeros_like(x)
    for _ in range(2):
        point = (x + change).clamp(0, 1)
        expected = ((point + eps * gradient(point).sign() - x).clamp(-eps, eps) + x).clamp(0, 1) - x
        taker.step([Batch(x, y, y)], 1.0)
        torch.testing.assert_close(taker.replay.change, expected)
        change = expected

    # The next batch begins with the perturbation of the one before, and a shorter one leaves the rest of it.
    z, w = digits(100, 8)
    seen = []
    taker.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone()))
    taker.step([Batch(z, w, w)], 1.0)

    torch.testing.assert_close(seen[0], (z + change[:8]).clamp(0, 1))
    assert torch.equal(taker.replay.change[8:], change[8:])


def test_free_training_takes_one_forward_a_step():
    network, passes = net(), []
    network.register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0])))
    stepper(network, SHORT.but(attack="free:4")).step([batch()], 1.0)

    assert passes == [16]


def test_free_training_attacks_hard_labels():
    takers = [stepper(net(), SHORT.but(attack="free:2", label_smoothing=smoothing)) for smoothing in (0.0, 0.3)]
    for taker in takers:
        taker.step([batch()], 1.0)

    assert torch.equal(takers[0].replay.change, takers[1].replay.change)


def test_only_the_network_runs_in_bf16():
    network = net()
    taker = stepper(network, SHORT.but(bf16=True))
    before = state(network)
    report = taker.step([batch()], 1.0)

    assert taker.logits(batch().x).dtype == torch.float32
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    exact = stepper(net(), SHORT).step([batch()], 1.0)
    assert report.loss == pytest.approx(exact.loss, rel=0.05)
    assert report.loss != exact.loss
    assert changed(network, before)


def test_bf16_uses_the_current_weights():
    # autocast drops its copies of the weights where the outermost context ends, and a whole training lies in one.
    network = net()
    taker = stepper(network, SHORT.but(bf16=True))
    with exact_arithmetic(torch.device("cpu")):
        taker.logits(batch().x)
        with torch.no_grad():
            network.fc.weight.zero_()
            network.fc.bias.fill_(0.25)

        assert (taker.logits(batch().x) == 0.25).all()


def test_noise_streams_depend_on_seed_epoch_and_image():
    ids = torch.tensor([3, 4, 3])
    keys = noise_keys(0, 1, ids)

    assert keys[0] == keys[2] != keys[1]
    assert not torch.equal(keys, noise_keys(0, 2, ids))
    assert not torch.equal(keys, noise_keys(1, 1, ids))
