"""BatchNorm in two branches."""

import torch
from robustkit.defenses import finetune
from robustkit.defenses.weights.batchnorm import recalibrate, statistics_frozen
from robustkit.defenses.weights.split import clean_branch, split
from torch import nn

from tests.defenses.doubles import Last
from tests.defenses.nets import SHORT, TRAIN, VAL, batch, changed, digits, net, state, stepper

X = digits(0, 16)[0]


def test_both_branches_start_as_the_layer_and_are_removed():
    network = net()
    before, expected = state(network), network(X)

    with split(network):
        assert torch.equal(network(X), expected)
        with clean_branch(network):
            assert torch.equal(network(X), expected)
        assert "bn1.clean.weight" in network.state_dict()

    assert list(network.state_dict()) == list(before)
    assert type(network.bn1) is nn.BatchNorm2d
    assert "uses_clean" not in vars(network.bn1)
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


def test_trades_trains_the_two_branches_differently():
    network = net()
    with split(network):
        stepper(network, SHORT.but(objective="trades:6", bn="split")).step([batch(0, 32)], 1.0)
        main, clean = network.bn1, network.bn1.clean

        assert not torch.equal(main.weight, clean.weight)
        assert not torch.equal(main.running_mean, clean.running_mean)
        assert main.num_batches_tracked == clean.num_batches_tracked == net().bn1.num_batches_tracked + 1


def test_the_adversarial_branch_is_kept():
    network = net()
    before, watch = list(state(network)), Last(network)
    recipe = SHORT.but(objective="trades:6", bn="split", epochs=1)
    finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, watch=watch)

    last = watch.model.bn1
    assert list(network.state_dict()) == before
    assert not torch.equal(last.weight, last.clean.weight)
    assert torch.equal(network.bn1.weight, last.weight) or torch.equal(network.bn1.weight, net().bn1.weight)


def test_statistics_of_an_unused_branch_are_not_recalculated():
    network = net()
    with split(network):
        clean = state(network.bn1.clean)
        recalibrate(network, [X])

        assert changed(network.bn1.clean, clean) == set()
        assert not torch.equal(network.bn1.running_mean, clean["running_mean"])


def test_the_statistics_of_both_branches_can_be_frozen():
    network = net()
    with split(network), statistics_frozen([network]):
        before = state(network)
        stepper(network, SHORT.but(objective="mart:5")).step([batch()], 1.0)

        moved = changed(network, before)
        assert not any("running" in name or "tracked" in name for name in moved)
        assert {"bn1.weight", "bn1.clean.weight"} <= moved
