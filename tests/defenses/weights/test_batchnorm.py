"""Frozen and recalculated BatchNorm statistics."""

import copy

import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.weights.batchnorm import modes, recalibrate, statistics_frozen, statistics_kept
from robustkit.defenses.weights.freezing import frozen_names, layers_with_frozen_statistics
from torch import nn

from tests.defenses.doubles import Activated, Watch
from tests.defenses.nets import SHORT, TRAIN, VAL, batch, changed, digits, net, same_weights, state, stepper

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


@pytest.mark.parametrize("layer", [
    nn.BatchNorm2d(3), nn.InstanceNorm2d(3, track_running_stats=True),
    nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 3, 3)),
])  # fmt: skip
def test_statistics_are_kept_through_the_ascent_of_awp(layer):
    # Those of all layers but BatchNorm moved twice per step: once for the perturbed weights.
    layer.train()
    before = state(layer)

    with statistics_kept(layer):
        layer(torch.rand(4, 3, 5, 5))

    assert not changed(layer, before)
    layer(torch.rand(4, 3, 5, 5))
    assert changed(layer, before)


@pytest.mark.filterwarnings("ignore:.*spectral_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("normalised", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_a_frozen_layer_with_spectral_normalisation_computes_the_same_after_steps(normalised):
    # Its vectors moved, and the weight with them.
    network = nn.Sequential(normalised(nn.Conv2d(1, 4, 3)), nn.Flatten(), nn.Linear(144, 10))
    x = digits(0, 8)[0]
    before, output = state(network), network[0].eval()(x)
    names = frozen_names(network, "prefix:0", 0)
    with statistics_frozen(layers_with_frozen_statistics(network, names, "batch")):
        network.train()
        for _ in range(3):
            network(x)

    assert not {name for name in changed(network, before) if name.startswith("0.")}
    assert torch.equal(network[0].eval()(x), output)


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
    assert frozen_norms(net(), frozen, bn) == expected


def frozen_norms(network: nn.Module, frozen: set[str], bn: str = "batch") -> list[str]:
    layers = layers_with_frozen_statistics(network, frozen, bn)
    with statistics_frozen(layers):
        network.train()
        return [name for name, norm in network.named_modules() if "Norm" in type(norm).__name__ and not norm.training]


def bare(channels: int = 4) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, affine=False)


def conv(channels: int = 4) -> nn.Conv2d:
    return nn.Conv2d(channels, 4, 3, padding=1)


def flat() -> nn.Sequential:
    return nn.Sequential(bare(1), conv(1), bare(), conv(), bare(), conv(), bare(), nn.Flatten(), nn.Linear(256, 10))


@pytest.mark.parametrize(
    ("text", "bn", "expected"),
    [
        ("none", "batch", []),
        ("none", "frozen-prefix", []),
        ("prefix:1", "batch", ["0", "2"]),
        ("prefix:3", "batch", ["0", "2", "4"]),
        ("prefix:3", "frozen-prefix", ["0", "2", "4"]),
        ("all-but:8", "batch", ["0", "2", "4", "6"]),
        ("3", "batch", []),  # the first convolution learns
        ("3", "frozen-prefix", ["0", "2"]),
        ("1, 5", "batch", ["0", "2"]),
        ("8", "batch", []),
        ("prefix:1", "frozen", ["0", "2", "4", "6"]),
    ],
)
def test_a_norm_without_weights_is_frozen_if_no_weight_before_it_learns(text, bn, expected):
    assert frozen_norms(flat(), frozen_names(flat(), text), bn) == expected


def test_a_norm_without_weights_inside_a_block_is_frozen_by_its_place():
    first = nn.Sequential(conv(1), bare(), nn.Sequential(conv(), bare()))
    network = nn.Sequential(first, nn.Sequential(conv(), bare()), nn.Flatten(), nn.Linear(256, 10))

    assert frozen_norms(network, frozen_names(network, "prefix:0.0")) == ["0.1"]
    assert frozen_norms(network, frozen_names(network, "prefix:0")) == ["0.1", "0.2.1"]
    assert frozen_norms(network, frozen_names(network, "1")) == ["1.1"]  # with its block, all of whose weights are


def test_a_convolution_that_two_blocks_share_counts_once():
    shared = conv()
    network = nn.Sequential(
        conv(1), nn.Sequential(shared, bare()), nn.Sequential(shared, bare()), conv(), bare(), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip

    assert frozen_norms(network, frozen_names(network, "prefix:1")) == ["1.1", "2.1"]


def test_a_norm_without_weights_is_frozen_after_weights_that_the_caller_froze():
    network = flat()
    network[:4].requires_grad_(False)

    assert frozen_norms(network, set()) == ["0", "2", "4"]


def test_the_statistics_of_a_frozen_instance_norm_are_frozen():
    tracking = [nn.InstanceNorm2d(4, affine=affine, track_running_stats=True) for affine in (True, False, True)]
    network = nn.Sequential(conv(1), tracking[0], conv(), tracking[1], conv(), tracking[2])

    assert frozen_norms(network, frozen_names(network, "prefix:2")) == ["1", "3"]
    assert frozen_norms(network, set(), "frozen") == []  # it has no BatchNorm


def test_frozen_layers_without_weights_in_their_norms_compute_the_same_after_a_training():
    torch.manual_seed(0)
    network = nn.Sequential(
        conv(1), bare(), conv(), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), conv(), nn.BatchNorm2d(4),
        nn.Flatten(), nn.Linear(256, 10),
    ).eval()  # fmt: skip
    before, x = state(network), digits(0, 8)[0]
    expected = network[:5](x)

    recipe = SHORT.but(epochs=1, freeze="prefix:4", bn="frozen-prefix", attack_bn="train", recalibrate=True, awp=0.01)
    moved: set[str] = set()
    finetune(
        network, TRAIN, VAL, eps=0.1, recipe=recipe, watch=Watch(lambda: moved.update(changed(network, before)))
    )  # fmt: skip

    assert torch.equal(network[:5](x), expected)
    assert {name.split(".")[0] for name in moved} == {"5", "7"}
