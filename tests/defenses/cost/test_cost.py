"""The cost that is told before a training against what is counted while it runs, and against arithmetic by hand."""

import math
from collections.abc import Iterator

import pytest
import torch
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.cost.cost import StepPasses, cost, crafting_passes, judging_passes, learning_passes, memory
from robustkit.defenses.cost.warnings import explain
from robustkit.defenses.inner_attack.specification import inner
from torch import Tensor, nn

from robustkit.data import TensorData, from_tensors
from tests.small import cnn, data

torch.set_num_threads(1)

BATCH = 22  # no other forward pass of a training has as many rows
SHORT = Recipe(epochs=1, batch=BATCH, lr=0.01, eps_warmup=0.0, select="pgd:steps=1")


def images(count: int = 60) -> TensorData:
    return from_tensors(*data(count))


class Passing:
    """Counts the passes of whole batches through a network."""

    def __init__(self, network: nn.Sequential) -> None:
        self.forwards = self.inputs = self.weights = 0
        network.register_forward_hook(self._forward)
        network[1].bias.register_post_accumulate_grad_hook(self._learnt)

    def _forward(self, module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        if len(logits) == BATCH:
            self.forwards += 1
            if logits.requires_grad:
                logits.register_hook(self._passed)

    def _passed(self, grad: Tensor) -> None:
        self.inputs += 1

    def _learnt(self, weight: Tensor) -> None:
        self.weights += 1


@pytest.mark.parametrize(
    ("goal", "attack"),
    [
        ("at", "pgd:steps=1"),
        ("at", "pgd:steps=7"),
        ("at", "apgd:steps=5"),
        ("trades:6", "apgd:steps=2,restarts=2"),
        ("at", "square:queries=4"),
        ("at", "mifgsm:steps=4"),
        ("at", "pgd:steps=2,restarts=2"),
        ("trades:6", "pgd:steps=3"),
        ("trades:6", "nfgsm"),
        ("mart:5", "pgd:steps=3"),
        ("clean", "pgd:steps=3"),
    ],
)
def test_the_passes_that_are_told_are_those_that_are_made(goal, attack):
    network, recipe = cnn(), SHORT.but(objective=goal, attack=attack)
    passing = Passing(network)
    x, y = data(BATCH + 10)
    finetune(network, (x[:BATCH], y[:BATCH]), (x[BATCH:], y[BATCH:]), eps=0.1, recipe=recipe)

    made = inner(attack, "Linf", 0.1)
    told = crafting_passes(recipe, made).plus(learning_passes(recipe, made))

    assert (passing.forwards, passing.inputs) == (told.forwards, told.inputs)
    # Gradients in the weights reach `.grad` once a step: an attack leaves them alone.
    assert passing.weights == 1


@pytest.mark.parametrize(
    "changes", [{"attack": "free:4"}, {"awp": 0.01}, {"awp": 0.01, "objective": "trades"}], ids=str
)
def test_replays_and_perturbed_weights_are_counted(changes):
    network, recipe = cnn(), SHORT.but(**changes)
    passing = Passing(network)
    x, y = data(BATCH + 10)
    finetune(network, (x[:BATCH], y[:BATCH]), (x[BATCH:], y[BATCH:]), eps=0.1, recipe=recipe)

    made = inner(recipe.attack, "Linf", 0.1)
    told = crafting_passes(recipe, made).plus(learning_passes(recipe, made))

    assert (passing.forwards, passing.inputs) == (told.forwards, told.inputs)


def test_a_step_of_k_attack_steps_costs_2k_plus_3():
    for steps in (1, 7, 10):
        known = cost(cnn(), images(), SHORT.but(attack=f"pgd:steps={steps}"), eps=0.1)

        assert known.units == 2 * steps + 3


@pytest.mark.parametrize(
    ("changes", "units"),
    [
        ({"objective": "trades:6", "attack": "pgd:steps=3"}, 2 * 3 + 1 + 6),
        ({"objective": "mart:5", "attack": "pgd:steps=3"}, 2 * 3 + 6),
        ({"attack": "free:4"}, 4 * 3),
        ({"attack": "pgd:steps=3", "awp": 0.01}, 2 * 3 + 6),
        ({"objective": "clean"}, 3),
    ],
    ids=str,
)
def test_other_objectives_add_what_they_add(changes, units):
    known = cost(cnn(), images(), SHORT.but(**changes), eps=0.1)

    assert known.units == units
    assert str(known)


def test_the_share_of_a_frozen_prefix_is_that_of_its_arithmetic():
    # 1 -> 6 channels on 8 x 8 with 3 x 3 kernels: 3456 products an image; 384 -> 10: 3840.
    network = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.Flatten(), nn.Linear(384, 10))

    known = cost(network, images(), SHORT.but(freeze="prefix:0"), eps=0.1)

    assert known.prefix == pytest.approx(3456 / (3456 + 3840))
    # Unfrozen, the convolution has a gradient in its weights alone, the head in both; frozen, the head in its weights.
    assert known.flops_unfrozen.backward / known.flops.backward == pytest.approx((3456 + 2 * 3840) / 3840)
    assert known.saved_units == pytest.approx(2 * (1 - 3840 / (3456 + 2 * 3840)))


def test_frozen_layers_behind_one_that_learns_are_no_prefix():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    known = cost(network, images(), SHORT.but(freeze="3.*"), eps=0.1)

    assert known.prefix == 0
    # Of 64 x 32 and twice 32 x 10 products, the head's gradient in its weights falls away.
    assert known.saved_units == pytest.approx(2 * 320 / (2048 + 2 * 320))


def test_deeper_freezing_keeps_less_while_learning_and_as_much_while_attacking():
    network = nn.Sequential(
        *(nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for channels in (1, 8, 8)),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    ways = ["none", "prefix:0", "prefix:1", "prefix:2"]

    found = [memory(network, images(), SHORT.but(freeze=way)) for way in ways]

    outer = [one.outer for one in found]
    assert outer == sorted(outer, reverse=True)
    assert len(set(outer)) == len(ways)
    # The attack's gradient passes through everything; only what gradients in the weights would need may go.
    assert min(one.attack for one in found) > 0.6 * max(one.attack for one in found)


def test_memory_grows_with_the_batch_as_when_it_is_measured_whole():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.Sigmoid(), nn.Linear(100, 10))

    # Kept of each image: the pixels, the sigmoid's output, and the logarithms of the probabilities.
    found = memory(network, images(), SHORT.but(batch=256)).outer * 2**20

    assert found == pytest.approx(256 * 4 * (64 + 100 + 10), rel=0.05)


def test_weights_are_no_activations_folded_or_not():
    network = nn.Sequential(
        nn.Conv2d(1, 256, 3), nn.AdaptiveAvgPool2d(2), nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip

    found = memory(network, images(), SHORT.but(batch=2))

    weights = network[2].weight.numel() * 4 / 2**20
    assert 0 < found.attack < weights / 4
    assert 0 < found.outer < weights / 4


def test_a_prior_is_told_both_ways():
    by_decay = cost(cnn(), images(50), SHORT.but(prior="gaussian:decay=5e-4"), eps=0.1).pulled
    by_width = cost(cnn(), images(50), SHORT.but(prior=f"l2sp:std={math.sqrt(40)}"), eps=0.1).pulled

    (zero,), (start,) = by_decay, by_width
    assert zero.sigma == pytest.approx(math.sqrt(1 / (50 * 5e-4)))
    assert start.decay == pytest.approx(5e-4)
    assert (zero.centre, start.centre) == ("zero", "start")


def test_weights_that_a_prior_spares_are_not_counted():
    network = cnn()
    known = cost(network, images(), SHORT.but(decay_norms=False), eps=0.1)

    covered = sum(weight.numel() for name, weight in network.named_parameters() if name.endswith("weight"))
    norms = sum(module.weight.numel() for module in network.modules() if isinstance(module, nn.BatchNorm2d))
    assert sum(pull.weights for pull in known.pulled) == covered - norms


@pytest.mark.parametrize("changes", [{}, {"freeze": "prefix:0"}, {"bn": "frozen"}, {"attack_bn": "batch"}], ids=str)
def test_asking_for_the_cost_leaves_no_trace(changes):
    network = cnn().train()
    network[0][1].eval()
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
        yield f"{name} flags", (weight.requires_grad, weight.grad)
    yield "random state", torch.get_rng_state()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"freeze": "prefix:0", "attack": "pgd:steps=10"}, "Freezing saves about"),
        ({"freeze": "prefix:0.0"}, "frozen layers are not robust"),
        ({"bn": "frozen"}, "collapse"),
        ({"label_smoothing": 0.3}, "hide gradients"),
        ({"attack": "pgd:steps=2,step_size=0.01"}, "cannot cross"),
        ({"attack": "pgd:steps=1"}, "catastrophic"),
        ({"objective": "clean"}, "control"),
    ],
    ids=str,
)
def test_choices_that_disappoint_are_named(changes, words):
    usual = SHORT.but(lr=0.05, attack="pgd:steps=7", eps_warmup=None)

    assert words not in explain(cnn(), images(), usual, eps=0.2)
    assert words in explain(cnn(), images(), usual.but(**changes), eps=0.2)


@pytest.mark.parametrize(
    ("changes", "most"), [({}, 1 + 2 * 41), ({"ema": 0.9}, 2 * (1 + 2 * 41)), ({"objective": "clean"}, 1)], ids=str
)
def test_judging_an_epoch_takes_at_most_two_attacks(changes, most):
    recipe = SHORT.but(select="pgd:steps=20", **changes)

    assert judging_passes(recipe, "Linf", 0.1) == most
    assert cost(cnn(), images(), recipe, eps=0.1, held_out=2 * BATCH).validation == 2 * most


def test_passes_add_up():
    assert StepPasses(1, 2, 3).plus(StepPasses(1)).units == 7
