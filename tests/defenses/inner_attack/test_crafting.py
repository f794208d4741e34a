"""What an inner attack leaves unchanged, what it maximizes, and which point it returns."""

from dataclasses import dataclass, replace

import pytest
import torch
from robustkit.attacks import PGD
from robustkit.defenses.inner_attack.crafting import craft, noise_keys
from robustkit.defenses.inner_attack.objectives import build_objective
from robustkit.defenses.inner_attack.specification import inner_attack
from robustkit.defenses.weights.batchnorm import modes
from torch.nn import functional as F

from robustkit.primitives import registry
from robustkit.primitives.ball import Ball, finer
from tests.defenses.nets import SHORT, batch, changed, digits, net, same_weights, state, stepper
from tests.problems import trials

EPS = 0.1


def flags(network) -> list[bool]:
    return [module.training for module in network.modules()]


@pytest.mark.parametrize("mode", ["eval", "batch"])
def test_an_attack_changes_no_buffer_gradient_or_flag(mode):
    network = net()
    taker = stepper(network, SHORT.but(attack_bn=mode))
    network.bn1.eval()
    F.cross_entropy(network(digits(0, 8)[0]), digits(0, 8)[1]).backward()
    before, grads = state(network), [weight.grad.clone() for weight in network.parameters()]
    flags_before = flags(network)

    taker.adversarial(batch(), 1.0)

    assert changed(network, before) == set()
    assert flags(network) == flags_before
    assert all(torch.equal(weight.grad, grad) for weight, grad in zip(network.parameters(), grads, strict=True))


def test_points_of_an_attack_that_leaves_the_ball_are_projected_and_others_keep_their_bits():
    # An evaluation projects them; the training took them as they were, without a word.
    @dataclass(frozen=True)
    class Far(PGD):
        def step(self, state, seen):
            after = super().step(state, seen)
            return replace(after, query=after.query + 2)

    given, ball = batch(), PGD(EPS).ball
    network, key = net(), noise_keys(0, 0, torch.arange(len(given.x)))

    far = craft(network, Far(EPS, steps=2), given.x, given.y, key)
    assert bool(ball.contains(given.x, far).all())
    nfgsm = craft(network, inner_attack("nfgsm", "Linf", EPS).attack, given.x, given.y, key)
    assert not bool(ball.contains(given.x, nfgsm).all())


def test_flags_are_restored_after_an_exception():
    network = net().train()
    network.bn1.eval()
    before = flags(network)

    with pytest.raises(ZeroDivisionError), modes(network, "batch"):
        raise ZeroDivisionError

    assert flags(network) == before


@pytest.mark.parametrize(("mode", "expected"), [("eval", {False}), ("train", {True}), ("batch", {True})])
def test_every_query_of_every_step_sees_the_same_mode(mode, expected):
    network, seen = net(), []
    network.bn1.register_forward_pre_hook(lambda module, inputs: seen.append(module.training))
    taker = stepper(network, SHORT.but(attack_bn=mode, attack="pgd:steps=3"))
    for first in (0, 16, 32):
        taker.adversarial(batch(first), 1.0)

    assert len(seen) == 9
    assert set(seen) == expected


def test_batch_statistics_are_used_without_being_tracked():
    network = net()
    x, _ = digits(0, 16)
    with torch.no_grad():
        expected = network.bn1.train()(network.conv1(x))
        network = net()
        with modes(network, "batch"):
            output = network.bn1(network.conv1(x))

    assert torch.equal(output, expected)
    assert same_weights(network, net())


def test_a_radius_of_zero_is_clean_training():
    one, other = net(), net()
    stepper(one, SHORT.but(objective="at")).step([batch()], 0.0)
    stepper(other, SHORT.but(objective="clean")).step([batch()], 1.0)

    assert same_weights(one, other)


def test_of_several_restarts_each_image_keeps_its_worst():
    x, y = digits(0, 16)
    key, network = noise_keys(0, 0, torch.arange(16)), net()

    def losses(restarts: int) -> torch.Tensor:
        attack = registry.build(f"noise:queries=2,restarts={restarts}", "Linf", 0.3)
        # The noise attack has no objective of its own, so its points are compared by the divergence alone.
        objective = build_objective("trades:1").attack_objective(network(x).detach())
        return objective(network(craft(network, attack, x, y, key, objective))).detach()

    one, four = losses(1), losses(4)

    assert (four >= one).all()
    assert (four > one).any()
    assert (four == one).any()  # the first restart was the best of some image, the last one not of all


def test_restarts_share_no_noise(monkeypatch):
    x, y = digits(0, 4)
    keys = []
    attack = registry.build("pgd:steps=1,restarts=4", "L2", 0.5)
    usual = type(attack.ball).random

    def remember(ball: Ball, x: torch.Tensor, key: torch.Tensor, draw: int) -> torch.Tensor:
        keys.append(key)
        return usual(ball, x, key, draw)

    monkeypatch.setattr(type(attack.ball), "random", remember)
    craft(net(), attack, x, y, noise_keys(0, 0, torch.arange(4)))

    # A ball draws from two streams: that of the key, and a finer one beside it.
    streams = torch.cat([*keys, *map(finer, keys)])
    assert len(keys) == 4
    assert len(streams.unique()) == len(streams)


@pytest.mark.parametrize("objective", ["at", "trades:1"])
@pytest.mark.parametrize(
    ("text", "norm", "eps"),
    [("apgd:steps=6", "Linf", 0.2), ("apgd:steps=6", "L2", 1.0), ("apgd:steps=10", "L1", 4.0),
     ("apgd:steps=1", "Linf", 0.2), ("apgd:steps=1", "L1", 4.0), ("square:queries=12", "Linf", 0.3)],
)  # fmt: skip
def test_an_attack_that_keeps_its_best_point_returns_it_not_its_last_one(text, norm, eps, objective):
    x, y = digits(0, 16)
    network, attack = net(), inner_attack(text, norm, eps).attack
    replaced = build_objective(objective).attack_objective(network(x).detach())
    points, losses = [], []

    def query(point: torch.Tensor) -> torch.Tensor:
        logits = network(point)
        points.append(point.detach())
        losses.append((attack.objective(logits, trials(x, y)) if replaced is None else replaced(logits)).detach())
        return logits

    x_adv = craft(query, attack, x, y, noise_keys(0, 0, torch.arange(16)), replaced)

    inside = torch.stack([attack.ball.contains(x, point) for point in points])
    best = torch.stack(losses).masked_fill(~inside, -torch.inf).argmax(0)
    assert len(points) == attack.cost.forwards
    assert torch.equal(x_adv, torch.stack(points)[best, torch.arange(16)])
    assert not torch.equal(x_adv, points[-1]) or attack.cost.forwards == 2


def test_the_attack_uses_hard_labels_however_smooth_the_loss_is():
    first = stepper(net(), SHORT).adversarial(batch(), 1.0)
    second = stepper(net(), SHORT.but(label_smoothing=0.3)).adversarial(batch(), 1.0)

    assert torch.equal(first, second)


def test_trades_leaves_the_clean_image_though_its_gradient_is_zero_there():
    x_adv = stepper(net(), SHORT.but(objective="trades:6", attack="bim:steps=5"), EPS).adversarial(batch(), 1.0)
    objective = build_objective("trades:6").attack_objective(net()(batch().x))
    gain, noise = objective(net()(x_adv)), objective(net()(batch().x + 1e-3))

    assert gain.mean() > 100 * noise.mean()


def test_the_noise_of_an_image_does_not_depend_on_its_batch():
    network = net()
    whole = stepper(network).adversarial(batch(0, 16), 1.0)
    part = stepper(network).adversarial(batch(8, 8), 1.0)

    torch.testing.assert_close(whole[8:], part, atol=1e-6, rtol=0)


def test_no_gradient_in_the_weights_is_computed():
    network, seen = net(), []
    for weight in network.parameters():
        weight.register_hook(seen.append)

    craft(network, registry.build("pgd:steps=2", "Linf", EPS), *digits(0, 8), torch.arange(8))

    assert seen == []
