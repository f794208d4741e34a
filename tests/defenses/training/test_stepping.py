"""One step of the optimizer."""

import copy

import pytest
import torch
from robustkit.defenses import Diverged
from robustkit.defenses.inner_attack.crafting import keys_of
from robustkit.defenses.training.batches import Batch
from torch import nn
from torch.nn import functional as F

from robustkit.classifier.isolation import exact_arithmetic
from robustkit.models.preprocessing import Normalised
from tests.defenses.nets import SHORT, batch, changed, digits, net, state, stepper
from tests.small import linear


def plain() -> nn.Module:
    """A network without BatchNorm."""
    found = linear()
    with torch.no_grad():
        found[1].weight.mul_(0.05)
    return found


@pytest.mark.parametrize("objective", ["at", "trades:6", "clean"])
def test_accumulated_batches_are_one_large_batch(objective):
    recipe = SHORT.but(objective=objective, clip=0.5, prior="gaussian:decay=0.01")
    one, other = plain(), plain()
    whole, parts = batch(0, 40), [batch(0, 16), batch(16, 16), batch(32, 8)]

    first = stepper(one, recipe).step([whole], 1.0)
    second = stepper(other, recipe).step(parts, 1.0)

    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, atol=1e-6, rtol=1e-5)
    assert first.loss == pytest.approx(second.loss, rel=1e-5)
    assert (first.right, first.images) == (second.right, second.images)


def test_smooth_labels_survive_preprocessing():
    model = Normalised(net(), [0.3], [0.4])
    expected = F.cross_entropy(copy.deepcopy(model).train()(batch().x), batch().y, label_smoothing=0.1)

    told = stepper(model, SHORT.but(objective="clean", label_smoothing=0.1)).step([batch()], 1.0)

    assert told.loss == pytest.approx(expected.item(), rel=1e-6)


def test_a_step_learns_in_train_mode():
    network = net()
    before = state(network)
    stepper(network).step([batch()], 1.0)

    assert {"bn1.running_mean", "bn1.num_batches_tracked", "conv1.weight", "fc.bias"} <= changed(network, before)


def test_the_largest_norm_of_the_gradient_is_clipped():
    network = plain()
    before = [weight.detach().clone() for weight in network.parameters()]
    stepper(network, SHORT.but(clip=1e-3, lr=1.0)).step([batch()], 1.0)

    moved = [weight.detach() - old for weight, old in zip(network.parameters(), before, strict=True)]
    assert torch.cat([move.flatten() for move in moved]).norm() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_moves_no_weight(bad):
    network = plain()
    found = stepper(network, SHORT.but(objective="clean"))
    x = batch().x.clone()
    x[3, 0, 2, 2] = bad
    before = state(network)

    with pytest.raises(Diverged, match="lower lr"):
        found.step([batch(), Batch(x, batch().y, batch().key)], 1.0)

    assert changed(network, before) == set()
    assert all(weight.grad is None for weight in network.parameters())


def test_a_gradient_that_is_no_number_moves_no_weight():
    class Kinked(nn.Module):
        """Finite everywhere, with an infinite slope at 0."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)
            self.zero = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.layer(x.flatten(1)) + self.zero.abs().sqrt()

    network = Kinked()
    before = state(network)

    with pytest.raises(Diverged, match="gradient"):
        stepper(network, SHORT.but(objective="clean")).step([batch()], 1.0)

    assert changed(network, before) == set()


def test_an_input_gradient_that_is_no_number_is_named():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x):
            return self.layer((x * 0).sqrt().flatten(1))

    with pytest.raises(Diverged, match="input gradient"):
        stepper(Masked()).step([batch()], 1.0)


def test_free_replay_carries_the_change_over():
    recipe, eps = SHORT.but(attack="free:2", lr=0.0 + 1e-9), 0.1
    found = stepper(net(), recipe, eps)
    frozen = found.network
    x, y = digits(0, 16)

    def gradient(point):
        query = point.clone().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(copy.deepcopy(frozen).train()(query), y), query)[0]

    change = torch.zeros_like(x)
    for _ in range(2):
        point = (x + change).clamp(0, 1)
        expected = ((point + eps * gradient(point).sign() - x).clamp(-eps, eps) + x).clamp(0, 1) - x
        found.step([Batch(x, y, y)], 1.0)
        torch.testing.assert_close(found.replay.change, expected)
        change = expected

    # The next batch begins with the change of the one before, and a shorter one leaves the rest of it.
    z, w = digits(100, 8)
    point = (z + change[:8]).clamp(0, 1)
    seen = []
    found.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone()))
    found.step([Batch(z, w, w)], 1.0)

    torch.testing.assert_close(seen[0], point)
    assert torch.equal(found.replay.change[8:], change[8:])


def test_free_replay_asks_once_a_step():
    network, passes = net(), []
    network.register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0])))
    stepper(network, SHORT.but(attack="free:4")).step([batch()], 1.0)

    assert passes == [16]


def test_free_replay_attacks_hard_labels():
    plain_, smooth = net(), net()
    one, other = (
        stepper(plain_, SHORT.but(attack="free:2")),
        stepper(smooth, SHORT.but(attack="free:2", label_smoothing=0.3)),
    )
    one.step([batch()], 1.0)
    other.step([batch()], 1.0)

    assert torch.equal(one.replay.change, other.replay.change)


def test_bf16_is_for_the_network_alone():
    network = net()
    found = stepper(network, SHORT.but(bf16=True))
    before = state(network)
    told = found.step([batch()], 1.0)

    assert found.logits(batch().x).dtype == torch.float32
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    exact = stepper(net(), SHORT).step([batch()], 1.0)
    assert told.loss == pytest.approx(exact.loss, rel=0.05)
    assert told.loss != exact.loss
    assert changed(network, before)


def test_bf16_asks_the_weights_as_they_are_now():
    # autocast forgets its copies of the weights where the outermost context ends, and a whole training lies in one.
    network = net()
    found = stepper(network, SHORT.but(bf16=True))
    with exact_arithmetic(torch.device("cpu")):
        found.logits(batch().x)
        with torch.no_grad():
            network.fc.weight.zero_()
            network.fc.bias.fill_(0.25)

        assert (found.logits(batch().x) == 0.25).all()


def test_noise_streams_name_epoch_and_image():
    ids = torch.tensor([3, 4, 3])
    keys = keys_of(0, 1, ids)

    assert keys[0] == keys[2] != keys[1]
    assert not torch.equal(keys, keys_of(0, 2, ids))
    assert not torch.equal(keys, keys_of(1, 1, ids))
