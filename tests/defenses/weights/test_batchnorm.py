"""Frozen and recalculated BatchNorm statistics."""

import copy

import pytest
import torch
from robustkit.defenses.weights.batchnorm import modes, recalibrate, statistics_frozen
from robustkit.defenses.weights.freezing import layers_with_frozen_statistics
from torch import nn

from tests.defenses.doubles import Activated
from tests.defenses.nets import batch, changed, digits, net, same_weights, state, stepper

STATISTICS = {f"{layer}.{name}" for layer in ("bn1", "layer1.1", "layer10.1")
              for name in ("running_mean", "running_var", "num_batches_tracked")}  # fmt: skip


def test_frozen_statistics_survive_train_mode_an_attack_and_a_step():
    network = net()
    before = state(network)

    with statistics_frozen([network]):
        taker = stepper(network)
        for mode in ("eval", "batch", "train"):
            with modes(network, mode):
                network(batch().x)
        taker.adversarial(batch(), 1.0)
        taker.step([batch()], 1.0)
        assert not network.bn1.training
        assert network.training

    assert not changed(network, before) & STATISTICS
    assert changed(network, before)


def test_a_frozen_network_and_its_copies_compute_as_in_eval_mode_and_can_be_saved():
    network, x = net().train(), digits(0, 8)[0]
    names, expected = list(network.state_dict()), net()(x)

    with statistics_frozen([network]):
        other = copy.deepcopy(network)
        assert torch.equal(network.train()(x), expected)
        assert list(network.state_dict()) == names
        net().load_state_dict(network.state_dict())
    before = state(other)
    other.train()(batch().x)

    assert isinstance(other.bn1, nn.BatchNorm2d)
    assert changed(other, before) == set()
    assert type(network.bn1) is nn.BatchNorm2d
    assert network.bn1.training


def test_a_subclass_of_batchnorm_is_frozen_and_keeps_its_forward():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), Activated(4))
    before, x = state(network), digits(0, 8)[0]

    with statistics_frozen([network]):
        assert network.train()(x).min() == 0

    assert changed(network, before) == set()


def test_recalculated_statistics_are_plain_averages_over_the_batches():
    network = net()
    parts = [digits(first, 32)[0] for first in (0, 32, 64)]

    recalibrate(network, parts)

    with torch.no_grad():
        outputs = [network.conv1(part) for part in parts]
    mean = torch.stack([part.mean((0, 2, 3)) for part in outputs]).mean(0)
    var = torch.stack([part.var((0, 2, 3)) for part in outputs]).mean(0)
    torch.testing.assert_close(network.bn1.running_mean, mean)
    torch.testing.assert_close(network.bn1.running_var, var)
    assert network.bn1.momentum == 0.1


def test_until_the_last_batch_the_network_uses_its_old_statistics():
    network, x = net(), digits(0, 32)[0]
    expected, logits = network(x), []

    def batches():
        for _ in range(3):
            logits.append(network(x))
            yield x

    recalibrate(network, batches())

    assert all(torch.equal(one, expected) for one in logits)
    assert not torch.equal(network(x), expected)


def test_frozen_statistics_are_not_recalculated():
    network = net()
    before = state(network)

    with statistics_frozen([network.bn1]):
        recalibrate(network, [digits(0, 32)[0]])

    assert changed(network, before) == {name for name in STATISTICS if not name.startswith("bn1")}


def test_without_a_batch_statistics_stay():
    network = net()
    recalibrate(network, [])

    assert same_weights(network, net())


CONVOLUTIONS = {"conv1.weight", "layer1.0.weight", "layer1.0.bias"}


@pytest.mark.parametrize(
    ("frozen", "bn", "expected"),
    [
        (set(), "batch", []),
        ({"conv1.weight", "bn1.weight", "bn1.bias"}, "batch", ["bn1"]),  # a frozen layer, whatever the choice
        (CONVOLUTIONS, "batch", []),
        (CONVOLUTIONS, "frozen-prefix", ["bn1"]),
        (set(), "frozen-prefix", []),
        (set(), "frozen", ["bn1", "layer1.1", "layer10.1"]),
    ],
)
def test_which_statistics_are_frozen(frozen, bn, expected):
    network = net()
    layers = layers_with_frozen_statistics(network, frozen, bn)
    norms = {norm for layer in layers for norm in layer.modules() if isinstance(norm, nn.BatchNorm2d)}

    assert [name for name, module in network.named_modules() if module in norms] == expected
