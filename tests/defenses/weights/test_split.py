"""Two branches of BatchNorm."""

import copy

import torch
from robustkit.defenses import finetune
from robustkit.defenses.weights.batchnorm import recalibrated, statistics_frozen
from robustkit.defenses.weights.split import clean_branch, split
from torch import nn

from tests.defenses.nets import SHORT, TRAIN, VAL, batch, changed, digits, net, state, stepper

X = digits(0, 16)[0]


def test_both_branches_begin_as_the_layer_and_nothing_is_left_of_them():
    network = net()
    before, expected = state(network), network(X)

    with split(network):
        assert torch.equal(network(X), expected)
        with clean_branch(network):
            assert torch.equal(network(X), expected)
        assert "bn1.clean.weight" in network.state_dict()

    assert list(network.state_dict()) == list(before)
    assert type(network.bn1) is nn.BatchNorm2d
    assert "asks_clean" not in vars(network.bn1)
    assert changed(network, before) == set()


def test_each_branch_has_statistics_and_weights_of_its_own():
    network = net()
    before = state(network)

    with split(network):
        clean = state(network.bn1.clean)
        with clean_branch(network):
            network.train()(X)
        assert changed(network.bn1.clean, clean)
        assert not changed(network, {**state(network), **before}) & {"bn1.running_mean", "bn1.running_var"}
        network.bn1.weight.data.mul_(2)
        assert torch.equal(network.bn1.clean.weight, before["bn1.weight"])


def test_trades_moves_both_branches_apart():
    network = net()
    with split(network):
        stepper(network, SHORT.but(objective="trades:6", bn="split")).step([batch(0, 32)], 1.0)
        main, clean = network.bn1, network.bn1.clean

        assert not torch.equal(main.weight, clean.weight)
        assert not torch.equal(main.running_mean, clean.running_mean)
        assert main.num_batches_tracked == clean.num_batches_tracked == net().bn1.num_batches_tracked + 1


def test_what_is_kept_is_the_adversarial_branch():
    network, seen = net(), []
    before = list(state(network))

    class Spy:
        def training(self, text, share):
            seen.append(copy.deepcopy(network.bn1))

        def say(self, text): ...

    finetune(network, TRAIN, VAL, eps=0.1, recipe=SHORT.but(objective="trades:6", bn="split", epochs=1), watch=Spy())

    assert list(network.state_dict()) == before
    assert not torch.equal(seen[-1].weight, seen[-1].clean.weight)
    assert torch.equal(network.bn1.weight, seen[-1].weight) or torch.equal(network.bn1.weight, net().bn1.weight)


def test_statistics_of_a_branch_that_is_not_asked_are_not_taken_anew():
    network = net()
    with split(network):
        clean = state(network.bn1.clean)
        recalibrated(network, [X])

        assert changed(network.bn1.clean, clean) == set()
        assert not torch.equal(network.bn1.running_mean, clean["running_mean"])


def test_frozen_branches_stand_still_both():
    network = net()
    with split(network), statistics_frozen([network]):
        before = state(network)
        stepper(network, SHORT.but(objective="mart:5")).step([batch()], 1.0)

        moved = changed(network, before)
        assert not any("running" in name or "tracked" in name for name in moved)
        assert {"bn1.weight", "bn1.clean.weight"} <= moved
