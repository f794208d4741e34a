"""BatchNorm that stands still, and statistics taken anew."""

import copy

import torch
from robustkit.defenses.weights.batchnorm import modes, recalibrated, statistics_frozen
from robustkit.defenses.weights.freezing import still_layers
from torch import nn

from tests.defenses.nets import batch, changed, digits, net, state, stepper

STATISTICS = {f"{layer}.{name}" for layer in ("bn1", "layer1.1", "layer10.1")
              for name in ("running_mean", "running_var", "num_batches_tracked")}  # fmt: skip


def test_frozen_statistics_survive_train_mode_an_attack_and_a_step():
    network = net()
    before = state(network)

    with statistics_frozen([network]):
        network.train()
        found = stepper(network)
        for mode in ("eval", "batch", "train"):
            with modes(network, mode):
                network(batch().x)
        found.adversarial(batch(), 1.0)
        found.step([batch()], 1.0)
        assert not network.bn1.training
        assert network.training

    assert not changed(network, before) & STATISTICS
    assert changed(network, before)


def test_frozen_batchnorm_answers_as_in_eval_mode():
    network, x = net(), digits(0, 8)[0]
    expected = network(x)

    with statistics_frozen([network]):
        assert torch.equal(network.train()(x), expected)


def test_frozen_batchnorm_keeps_its_names_and_its_class_comes_back():
    network = net().train()
    names = list(network.state_dict())

    with statistics_frozen([network]):
        assert list(network.state_dict()) == names
        net().load_state_dict(network.state_dict())
        assert isinstance(copy.deepcopy(network).bn1, nn.BatchNorm2d)

    assert type(network.bn1) is nn.BatchNorm2d
    assert network.bn1.training


def test_a_copy_made_inside_is_frozen_too():
    network = net()
    with statistics_frozen([network]):
        other = copy.deepcopy(network)
    before = state(other)
    other.train()(batch().x)

    assert changed(other, before) == set()


class Activated(nn.BatchNorm2d):
    """A BatchNorm with an activation of its own, as some libraries have."""

    def forward(self, x):
        return super().forward(x).relu()


def test_batchnorm_of_a_class_of_its_own_is_frozen_and_keeps_its_forward():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), Activated(4))
    before, x = state(network), digits(0, 8)[0]

    with statistics_frozen([network]):
        assert network.train()(x).min() == 0

    assert changed(network, before) == set()


def test_statistics_are_plain_averages_over_the_batches():
    network = net()
    parts = [digits(first, 32)[0] for first in (0, 32, 64)]

    recalibrated(network, parts)

    with torch.no_grad():
        seen = [network.conv1(part) for part in parts]
    mean = torch.stack([part.mean((0, 2, 3)) for part in seen]).mean(0)
    var = torch.stack([part.var((0, 2, 3)) for part in seen]).mean(0)
    torch.testing.assert_close(network.bn1.running_mean, mean)
    torch.testing.assert_close(network.bn1.running_var, var)
    assert network.bn1.momentum == 0.1


def test_until_the_last_batch_the_network_answers_with_its_old_statistics():
    network, x = net(), digits(0, 32)[0]
    expected, answers = network(x), []

    def batches():
        for _ in range(3):
            answers.append(network(x))
            yield x

    recalibrated(network, batches())

    assert all(torch.equal(answer, expected) for answer in answers)
    assert not torch.equal(network(x), expected)


def test_frozen_statistics_are_not_taken_anew():
    network = net()
    before = state(network)

    with statistics_frozen([network.bn1]):
        recalibrated(network, [digits(0, 32)[0]])

    assert changed(network, before) == {name for name in STATISTICS if not name.startswith("bn1")}


def test_without_any_batch_statistics_stay():
    network = net()
    recalibrated(network, [])

    assert changed(network, state(net())) == set()


def still(names: set[str], bn: str) -> list[str]:
    network = net()
    layers = {id(norm) for layer in still_layers(network, names, bn) for norm in layer.modules()}
    return [name for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)
            and id(module) in layers]  # fmt: skip


def test_which_statistics_stand_still():
    conv = {"conv1.weight", "layer1.0.weight", "layer1.0.bias"}
    whole = {name for name, _ in net().named_parameters() if name.startswith(("conv1", "bn1"))}

    assert still(set(), "batch") == []
    assert still(whole, "batch") == ["bn1"]  # a frozen layer stands still whatever is asked
    assert still(conv, "batch") == []
    assert still(conv, "frozen-prefix") == ["bn1"]
    assert still(set(), "frozen-prefix") == []
    assert still(set(), "frozen") == ["bn1", "layer1.1", "layer10.1"]
