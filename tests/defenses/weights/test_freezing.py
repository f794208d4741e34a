"""Frozen weights keep their bits through everything that changes the others."""

import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.training import setup
from robustkit.defenses.weights.freezing import frozen, frozen_names

from robustkit.errors import UserError
from tests.defenses.doubles import Watch
from tests.defenses.nets import SHORT, TRAIN, VAL, changed, net, state
from tests.small import linear

EVERYTHING = SHORT.but(ema=0.9, recalibrate=True, clip=1.0, prior="gaussian:decay=0.01", awp=0.01, attack_bn="train")


def layers(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def moved_in(recipe, network) -> set[str]:
    """Names of all tensors that a training moved, after any step or at its end."""
    before, seen = state(network), set()
    finetune(
        network, TRAIN, VAL, eps=0.1, recipe=recipe, watch=Watch(lambda: seen.update(changed(network, before)))
    )  # fmt: skip
    return seen | changed(network, before)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", set()), ("prefix:bn1", {"conv1", "bn1"}), ("prefix:layer1", {"conv1", "bn1", "layer1"}),
        ("all-but:fc", {"conv1", "bn1", "layer1", "layer10"}), ("layer1", {"layer1"}), ("layer1.*", {"layer1"}),
        ("layer1*", {"layer1", "layer10"}), ("conv1, fc", {"conv1", "fc"}),
    ],
)  # fmt: skip
def test_which_weights_a_text_freezes(text, expected):
    network = net()
    names = frozen_names(network, text)

    assert layers(names) == expected
    assert names == {name for name, _ in network.named_parameters() if name.split(".")[0] in expected}


@pytest.mark.parametrize("text", ["all-but:1", "bn-only", ",", "0:1.weight;1:all-but:1"])
def test_a_freeze_that_freezes_nothing_is_refused(text):
    # All weights lie in one layer.
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    )

    with pytest.raises(UserError, match="freezes no weight"):
        frozen_names(network, text, epoch=1)


def test_bn_only_leaves_batchnorm_and_the_head_free():
    network = net()
    free = {name for name, _ in network.named_parameters()} - frozen_names(network, "bn-only")

    assert free == {"bn1.weight", "bn1.bias", "layer1.1.weight", "layer1.1.bias", "layer10.1.weight",
                    "layer10.1.bias", "fc.weight", "fc.bias"}  # fmt: skip


def test_unfreezing_by_epoch():
    network, text = net(), "0:all-but:fc;2:prefix:bn1;4:none"

    by_epoch = [layers(frozen_names(network, text, epoch)) for epoch in range(6)]

    deep, shallow = {"conv1", "bn1", "layer1", "layer10"}, {"conv1", "bn1"}
    assert by_epoch == [deep, deep, shallow, shallow, set(), set()]


@pytest.mark.usefixtures("judged_quickly")
@pytest.mark.parametrize(
    ("text", "optimizer"),
    [("prefix:layer1", "sgd"), ("all-but:fc", "adamw"), ("layer1", "adamw"), ("conv1.weight", "sgd")],
)
def test_frozen_weights_and_their_statistics_keep_their_bits(text, optimizer):
    network = net()
    network.layer1[0].weight.grad = torch.ones_like(network.layer1[0].weight)
    names = frozen_names(network, text)

    moved = moved_in(EVERYTHING.but(epochs=1, freeze=text, optimizer=optimizer), network)

    modules = {name.rpartition(".")[0] for name in names}
    assert moved
    assert not moved & names
    assert not any(name.rpartition(".")[0] in modules for name in moved)
    assert all(weight.requires_grad for weight in network.parameters())


@pytest.mark.usefixtures("judged_quickly")
def test_frozen_batchnorm_statistics_keep_their_bits():
    moved = moved_in(EVERYTHING.but(bn="frozen", lr=0.005), net())

    assert not any("running" in name or "tracked" in name for name in moved)


@pytest.mark.usefixtures("judged_quickly")
def test_batch_statistics_move_where_weights_learn():
    moved = moved_in(SHORT.but(freeze="prefix:bn1"), net())

    assert "layer1.1.running_mean" in moved
    assert "bn1.running_mean" not in moved


@pytest.mark.usefixtures("judged_quickly")
def test_what_the_caller_froze_stays_frozen_with_its_statistics():
    network = net()
    for layer in (network.conv1, network.bn1):
        layer.requires_grad_(False)

    moved = moved_in(SHORT.but(attack_bn="train"), network)

    assert not any(name.startswith(("conv1", "bn1")) for name in moved)
    assert "layer1.1.running_mean" in moved
    assert [weight.requires_grad for weight in network.parameters()].count(False) == 3


@pytest.mark.usefixtures("judged_quickly")
def test_weights_move_in_the_epochs_in_which_they_are_not_frozen():
    network, seen = net(), []

    watch = Watch(lambda: seen.append((network.conv1.weight.detach().clone(), network.fc.weight.detach().clone())))
    recipe = SHORT.but(epochs=3, freeze="0:all-but:fc;1:fc;2:none", schedule="flat", warmup=0.0, prior="none")
    finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, watch=watch)

    convs, heads = zip(*seen, strict=True)
    assert all(torch.equal(conv, net().conv1.weight) for conv in convs[:5])
    assert not torch.equal(convs[5], convs[4])
    # The head is frozen in the second epoch, whatever momentum it had.
    assert all(torch.equal(head, heads[4]) for head in heads[5:10])
    assert not torch.equal(heads[10], heads[9])


@pytest.mark.usefixtures("judged_quickly")
def test_the_optimizer_forgets_frozen_weights(monkeypatch):
    network, optimizers, seen = net(), [], []
    usual = setup.build_optimizer

    def remembered(weights, recipe):
        optimizers.append(usual(weights, recipe))
        return optimizers[-1]

    def look():
        seen.append({name for name, weight in network.named_parameters() if weight in optimizers[0].state})

    monkeypatch.setattr(setup, "build_optimizer", remembered)
    recipe = SHORT.but(freeze="0:all-but:fc;1:fc", guard=False)
    finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, watch=Watch(look))

    head, whole = {"fc.weight", "fc.bias"}, {name for name, _ in network.named_parameters()}
    assert seen == [head] * 5 + [whole - head] * 5


def test_a_gradient_that_the_caller_left_is_deleted():
    network = net()
    network.conv1.weight.grad = torch.zeros_like(network.conv1.weight)

    with frozen(network, {"conv1.weight"}):
        assert network.conv1.weight.grad is None
        assert not network.conv1.weight.requires_grad
    assert network.conv1.weight.requires_grad


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prefix:fc", "every weight"), ("*", "every weight"), ("prefix:layer2", "layer1"), ("all-but:head", "layer"),
        ("prefix:", "layer"), ("layer3", "freeze=.*prefix:LAYER"), ("conv1,layr1", "layer1"), ("", "is empty"),
        ("1:none", "begin with 0"), ("0:none;0:fc", "increase"), ("0:none;fc", "no epoch"),
        ("prefix:drop", "no weights"),
    ],
)  # fmt: skip
def test_a_text_that_freezes_nothing_or_everything_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        frozen_names(net(), text)


def test_bn_only_needs_a_batchnorm():
    with pytest.raises(UserError, match="has none"):
        frozen_names(linear(), "bn-only")
