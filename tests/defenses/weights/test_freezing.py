"""Weights that stay, to the bit, through everything that moves the others."""

from collections.abc import Callable

import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.training import training
from robustkit.defenses.weights.freezing import frozen, frozen_names

from robustkit.errors import UserError
from tests.defenses.nets import SHORT, TRAIN, VAL, changed, net, state
from tests.small import linear

EVERYTHING = SHORT.but(ema=0.9, recalibrate=True, clip=1.0, prior="gaussian:decay=0.01", awp=0.01, attack_bn="train")


def heads(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


class Spy:
    """Looks after each step."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.look = look

    def training(self, words, share):
        self.look()

    def say(self, words): ...


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", set()), ("prefix:bn1", {"conv1", "bn1"}), ("prefix:layer1", {"conv1", "bn1", "layer1"}),
        ("all-but:fc", {"conv1", "bn1", "layer1", "layer10"}), ("layer1", {"layer1"}), ("layer1.*", {"layer1"}),
        ("layer1*", {"layer1", "layer10"}), ("conv1, fc", {"conv1", "fc"}),
    ],
)  # fmt: skip
def test_what_a_text_freezes(text, expected):
    network = net()
    names = frozen_names(network, text)

    assert heads(names) == expected
    assert names == {name for name, _ in network.named_parameters() if name.split(".")[0] in expected}


def test_bn_only_leaves_batchnorm_and_the_head_free():
    network = net()
    free = {name for name, _ in network.named_parameters()} - frozen_names(network, "bn-only")

    assert free == {"bn1.weight", "bn1.bias", "layer1.1.weight", "layer1.1.bias", "layer10.1.weight",
                    "layer10.1.bias", "fc.weight", "fc.bias"}  # fmt: skip


def test_unfreezing_by_epoch():
    network, text = net(), "0:all-but:fc;2:prefix:bn1;4:none"

    found = [heads(frozen_names(network, text, epoch)) for epoch in range(6)]

    deep, shallow = {"conv1", "bn1", "layer1", "layer10"}, {"conv1", "bn1"}
    assert found == [deep, deep, shallow, shallow, set(), set()]


@pytest.mark.parametrize(
    ("text", "optimizer"),
    [("prefix:layer1", "sgd"), ("all-but:fc", "adamw"), ("layer1", "adamw"), ("conv1.weight", "sgd")],
)
def test_frozen_weights_and_statistics_are_the_same_bits_in_the_end(text, optimizer):
    network = net()
    network.layer1[0].weight.grad = torch.ones_like(network.layer1[0].weight)
    before = state(network)
    names = frozen_names(network, text)
    seen = []

    spy = Spy(lambda: seen.append(changed(network, before)))
    finetune(network, TRAIN, VAL, eps=0.1, recipe=EVERYTHING.but(freeze=text, optimizer=optimizer), watch=spy)

    moved = set().union(*seen, changed(network, before))
    layers = {name.rpartition(".")[0] for name in names}
    assert moved
    assert not moved & names
    assert not any(name.rpartition(".")[0] in layers for name in moved)
    assert all(weight.requires_grad for weight in network.parameters())


def test_frozen_batchnorm_statistics_are_the_same_bits_in_the_end():
    network = net()
    before = state(network)
    finetune(network, TRAIN, VAL, eps=0.1, recipe=EVERYTHING.but(bn="frozen", lr=0.005))

    assert not any("running" in name or "tracked" in name for name in changed(network, before))


def test_batch_statistics_move_where_weights_learn():
    network, seen = net(), []
    before = state(network)

    spy = Spy(lambda: seen.append(changed(network, before)))
    finetune(network, TRAIN, VAL, eps=0.1, recipe=SHORT.but(freeze="prefix:bn1"), watch=spy)

    assert "layer1.1.running_mean" in seen[-1]
    assert "bn1.running_mean" not in seen[-1]


def test_weights_that_become_free_begin_without_momentum():
    network, seen = net(), []

    spy = Spy(lambda: seen.append((network.conv1.weight.detach().clone(), network.fc.weight.detach().clone())))
    recipe = SHORT.but(epochs=3, freeze="0:all-but:fc;1:fc;2:none", schedule="flat", warmup=0.0, prior="none")
    finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, watch=spy)

    convs, heads_ = zip(*seen, strict=True)
    assert all(torch.equal(conv, net().conv1.weight) for conv in convs[:5])
    assert not torch.equal(convs[5], convs[4])
    # The head is frozen in the second epoch, whatever momentum it had.
    assert all(torch.equal(head, heads_[4]) for head in heads_[5:10])
    assert not torch.equal(heads_[10], heads_[9])


def test_the_optimizer_forgets_what_is_frozen(monkeypatch):
    network, made, seen = net(), [], []
    usual = training._optimizer

    def spied(weights, recipe):
        made.append(usual(weights, recipe))
        return made[-1]

    spy = Spy(lambda: seen.append({name for name, weight in network.named_parameters() if weight in made[0].state}))
    monkeypatch.setattr(training, "_optimizer", spied)
    recipe = SHORT.but(freeze="0:all-but:fc;1:fc", guard=False)
    finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, watch=spy)

    head, whole = {"fc.weight", "fc.bias"}, {name for name, _ in network.named_parameters()}
    assert seen[:5] == [head] * 5
    assert seen[5:] == [whole - head] * 5


def test_what_the_caller_froze_stays_frozen():
    network = net()
    network.conv1.weight.requires_grad_(False)
    before = state(network)
    finetune(network, TRAIN, VAL, eps=0.1, recipe=SHORT)

    assert "conv1.weight" not in changed(network, before)
    assert [weight.requires_grad for weight in network.parameters()].count(False) == 1


def test_statistics_of_a_batchnorm_that_the_caller_froze_stand_still():
    network, seen = net(), []
    for layer in (network.conv1, network.bn1):
        layer.requires_grad_(False)
    before = state(network)

    spy = Spy(lambda: seen.append(changed(network, before)))
    finetune(network, TRAIN, VAL, eps=0.1, recipe=SHORT.but(attack_bn="train"), watch=spy)

    moved = set().union(*seen)
    assert not any(name.startswith(("conv1", "bn1")) for name in moved)
    assert "layer1.1.running_mean" in moved


def test_a_gradient_left_behind_is_taken_away():
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
        ("prefix:", "layer"), ("layer3", "freeze=.*prefix:LAYER"), ("conv1,layr1", "layer1"), ("", "names nothing"),
        ("1:none", "begin with 0"), ("0:none;0:fc", "rise"), ("0:none;fc", "no epoch"), ("prefix:drop", "no weights"),
    ],
)  # fmt: skip
def test_what_freezes_nothing_or_everything_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        frozen_names(net(), text)


def test_bn_only_needs_a_batchnorm():
    with pytest.raises(UserError, match="has none"):
        frozen_names(linear(), "bn-only")
