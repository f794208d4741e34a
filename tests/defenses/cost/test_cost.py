"""The predicted cost against what is counted while a training runs, and against arithmetic by hand."""

import math
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.cost.cost import cost, memory
from robustkit.defenses.cost.passes import crafting_passes, judging_passes, learning_passes
from robustkit.defenses.cost.warnings import explain
from robustkit.defenses.inner_attack.specification import inner_attack
from robustkit.defenses.weights.average import Average
from torch import Tensor, nn

from robustkit.data import TensorData, from_tensors
from tests.small import cnn, data

torch.set_num_threads(1)

BATCH = 22  # no other forward pass of a training has as many rows
SHORT = Recipe(epochs=1, batch=BATCH, lr=0.01, eps_warmup=0.0, select="pgd:steps=1")


def images(count: int = 60) -> TensorData:
    return from_tensors(*data(count))


class PassCounter:
    """Counts the passes of whole batches through a network."""

    def __init__(self, network: nn.Sequential) -> None:
        self.forwards = self.inputs = self.weights = 0
        network.register_forward_hook(self._forward)
        network[1].bias.register_post_accumulate_grad_hook(self._learned)

    def _forward(self, module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        if len(logits) == BATCH:
            self.forwards += 1
            if logits.requires_grad:
                logits.register_hook(self._passed)

    def _passed(self, grad: Tensor) -> None:
        self.inputs += 1

    def _learned(self, weight: Tensor) -> None:
        self.weights += 1


@pytest.mark.usefixtures("judged_quickly")
@pytest.mark.parametrize(
    "changes",
    [
        *({"attack": attack} for attack in ("pgd:steps=1", "pgd:steps=7", "apgd:steps=5", "square:queries=4",
                                            "mifgsm:steps=4", "pgd:steps=2,restarts=2", "free:4")),
        *({"objective": "trades:6", "attack": attack} for attack in ("apgd:steps=2,restarts=2", "pgd:steps=3")),
        {"objective": "trades:6", "attack": "nfgsm"},
        {"objective": "mart:5"}, {"objective": "clean"}, {"awp": 0.01}, {"awp": 0.01, "objective": "trades"},
    ],
    ids=str,
)  # fmt: skip
def test_the_predicted_passes_are_those_of_the_training(changes):
    network, recipe = cnn(), SHORT.but(**{"attack": "pgd:steps=3", **changes})
    counter = PassCounter(network)
    x, y = data(BATCH + 10)
    finetune(network, (x[:BATCH], y[:BATCH]), (x[BATCH:], y[BATCH:]), eps=0.1, recipe=recipe)

    inner = inner_attack(recipe.attack, "Linf", 0.1)
    passes = crafting_passes(recipe, inner).plus(learning_passes(recipe, inner))

    assert (counter.forwards, counter.inputs) == (passes.forwards, passes.inputs)
    # Gradients in the weights reach `.grad` once per optimizer step; an attack computes none.
    assert counter.weights == inner.replays


@pytest.mark.parametrize(
    ("changes", "units"),
    [
        *(({"attack": f"pgd:steps={steps}"}, 2 * steps + 3) for steps in (1, 7, 10)),
        ({"objective": "trades:6", "attack": "pgd:steps=3"}, 2 * 3 + 1 + 6),
        ({"objective": "mart:5", "attack": "pgd:steps=3"}, 2 * 3 + 6),
        ({"attack": "free:4"}, 4 * 3),
        ({"attack": "pgd:steps=3", "awp": 0.01}, 2 * 3 + 6),
        ({"objective": "clean"}, 3),
    ],
    ids=str,
)
def test_a_step_costs_as_many_forwards_as_computed_by_hand(changes, units):
    predicted = cost(cnn(), images(), SHORT.but(**changes), eps=0.1)

    assert predicted.units == units
    assert predicted.step_seconds > 0
    assert str(predicted)


def two_convolutions() -> nn.Sequential:
    """Channels enough for the memory layouts of images and weights to differ."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_network_is_measured_in_the_layout_of_its_training(channels_last):
    network, layouts = two_convolutions(), set()

    def remember(module: nn.Conv2d, inputs: tuple[Tensor, ...]) -> None:
        layouts.add((inputs[0].is_contiguous(memory_format=torch.channels_last),
                     module.weight.is_contiguous(memory_format=torch.channels_last)))  # fmt: skip

    network[3].register_forward_pre_hook(remember)
    cost(network, images(), SHORT.but(channels_last=channels_last), eps=0.1)

    assert layouts == {(channels_last, channels_last)}
    assert network[3].weight.is_contiguous()


def test_the_network_is_measured_with_the_branches_of_its_training():
    network, branches = two_convolutions(), set()

    def remember(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if module is network[1]:  # and not its clean branch, which is a copy
            branches.update(name for name, _ in module.named_children())

    network[1].register_forward_pre_hook(remember)
    cost(network, images(), SHORT.but(objective="trades:6", bn="split"), eps=0.1)

    assert branches == {"clean"}
    assert not list(network[1].children())


def test_the_optimizer_and_the_weight_average_are_part_of_the_measured_step(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.optim.SGD, "step", lambda optimizer: calls.append("step"))
    monkeypatch.setattr(Average, "update", lambda average, network: calls.append("average"))

    cost(cnn(), images(), SHORT.but(ema=0.9), eps=0.1)

    assert set(calls) == {"step", "average"}


def test_a_learning_rate_that_would_diverge_does_not_disturb_the_measurement():
    assert cost(cnn(), images(), SHORT.but(lr=1e30), eps=0.1).step_seconds > 0


def test_the_share_of_a_frozen_prefix_is_that_of_its_arithmetic():
    # 1 -> 6 channels on 8 x 8 with 3 x 3 kernels: 3456 products an image; 384 -> 10: 3840.
    network = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.Flatten(), nn.Linear(384, 10))

    predicted = cost(network, images(), SHORT.but(freeze="prefix:0"), eps=0.1)

    assert predicted.prefix == pytest.approx(3456 / (3456 + 3840))
    # Unfrozen, the convolution has a gradient in its weights and the head in both; frozen, the head in its weights.
    assert predicted.flops_unfrozen.backward / predicted.flops.backward == pytest.approx((3456 + 2 * 3840) / 3840)
    assert predicted.saved_units == pytest.approx(2 * (1 - 3840 / (3456 + 2 * 3840)))


def test_frozen_layers_after_one_that_learns_are_no_prefix():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    predicted = cost(network, images(), SHORT.but(freeze="3.*"), eps=0.1)

    assert predicted.prefix == 0
    # Of 64 x 32 and twice 32 x 10 products, the head's gradient in its weights is not needed.
    assert predicted.saved_units == pytest.approx(2 * 320 / (2048 + 2 * 320))


def test_deeper_freezing_needs_less_memory_while_learning_and_as_much_while_attacking():
    network = nn.Sequential(
        *(nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for channels in (1, 8, 8)),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    texts = ["none", "prefix:0", "prefix:1", "prefix:2"]

    needed = [memory(network, images(), SHORT.but(freeze=text), eps=0.1) for text in texts]

    outer = [one.outer for one in needed]
    assert outer == sorted(outer, reverse=True)
    assert len(set(outer)) == len(texts)
    # The attack's gradient passes through all layers; only what gradients in the weights would need is saved.
    assert min(one.attack for one in needed) > 0.6 * max(one.attack for one in needed)


def test_memory_of_a_large_batch_is_that_computed_by_hand():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.Sigmoid(), nn.Linear(100, 10))

    # For each image: the pixels, the sigmoid's output, and the logarithms of the probabilities.
    needed = memory(network, images(), SHORT.but(batch=256), eps=0.1).outer * 2**20

    assert needed == pytest.approx(256 * 4 * (64 + 100 + 10), rel=0.05)


def test_weights_do_not_count_as_activations_folded_or_not():
    network = nn.Sequential(
        nn.Conv2d(1, 256, 3), nn.AdaptiveAvgPool2d(2), nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip

    needed = memory(network, images(), SHORT.but(batch=2), eps=0.1)

    weights = network[2].weight.numel() * 4 / 2**20
    assert 0 < needed.attack < weights / 4
    assert 0 < needed.outer < weights / 4


def test_a_prior_is_given_as_decay_and_as_standard_deviation():
    by_decay = cost(cnn(), images(50), SHORT.but(prior="gaussian:decay=5e-4"), eps=0.1).prior
    by_width = cost(cnn(), images(50), SHORT.but(prior=f"l2sp:std={math.sqrt(40)}"), eps=0.1).prior

    (zero,), (start,) = by_decay, by_width
    assert zero.sigma == pytest.approx(math.sqrt(1 / (50 * 5e-4)))
    assert start.decay == pytest.approx(5e-4)
    assert (zero.centre, start.centre) == ("zero", "start")


def test_weights_without_a_prior_are_not_counted():
    network = cnn()
    predicted = cost(network, images(), SHORT.but(decay_norms=False), eps=0.1)

    covered = sum(weight.numel() for name, weight in network.named_parameters() if name.endswith("weight"))
    norms = sum(module.weight.numel() for module in network.modules() if isinstance(module, nn.BatchNorm2d))
    assert sum(pull.weights for pull in predicted.prior) == covered - norms


@pytest.mark.parametrize(
    "changes",
    [{}, {"freeze": "prefix:0"}, {"bn": "frozen"}, {"attack_bn": "batch"},
     {"attack_bn": "train", "channels_last": True},
     {"objective": "trades:6", "bn": "split", "awp": 0.01, "optimizer": "adamw"}, {"attack": "free:2"}],
    ids=str,
)  # fmt: skip
def test_predicting_the_cost_does_not_change_the_model(changes):
    network = cnn().train()
    network[0][1].eval()
    network[1].bias.grad = torch.ones(10)
    before = dict(_state(network))

    explain(network, images(), SHORT.but(**changes), eps=0.1)

    for name, value in _state(network):
        assert torch.equal(value, before[name]) if isinstance(value, Tensor) else value == before[name], name


def _state(network: nn.Module) -> Iterator[tuple[str, object]]:
    for name, value in network.state_dict().items():
        yield name, value.clone()
    for name, module in network.named_modules():
        yield f"{name} mode", (module.training, type(module))
    for name, weight in network.named_parameters():
        yield f"{name} flags", (weight.requires_grad, weight.stride(), weight.data_ptr(), id(weight.grad))
    yield "random state", torch.get_rng_state()


@cache
def explained(**changes: object) -> str:
    return explain(cnn(), images(), SHORT.but(lr=0.05, attack="pgd:steps=7", eps_warmup=None).but(**changes), eps=0.2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"freeze": "prefix:0", "attack": "pgd:steps=10"}, "Freezing saves only about"),
        ({"freeze": "prefix:0.0"}, "frozen layers are not robust"),
        ({"bn": "frozen"}, "collapse"),
        ({"label_smoothing": 0.3}, "hide gradients"),
        ({"attack": "pgd:steps=2,step_size=0.01"}, "cannot cross"),
        ({"attack": "pgd:steps=1"}, "catastrophic"),
        ({"objective": "clean"}, "control"),
    ],
    ids=str,
)
def test_choices_that_may_disappoint_are_named(changes, words):
    assert words not in explained()
    assert words in explained(**changes)


@pytest.mark.parametrize(
    ("changes", "most"), [({}, 1 + 2 * 41), ({"ema": 0.9}, 2 * (1 + 2 * 41)), ({"objective": "clean"}, 1)], ids=str
)
def test_judging_an_epoch_takes_at_most_two_attacks(changes, most):
    recipe = SHORT.but(select="pgd:steps=20", **changes)

    assert judging_passes(recipe, "Linf", 0.1) == most
    assert cost(cnn(), images(), recipe, eps=0.1, held_out=2 * BATCH).validation == 2 * most
