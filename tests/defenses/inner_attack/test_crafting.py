"""What an inner attack leaves as it was, and what it climbs."""

import pytest
import torch
from robustkit.defenses.inner_attack import crafting as adversary
from robustkit.defenses.inner_attack.crafting import crafted, keys_of
from robustkit.defenses.inner_attack.objectives import objective
from robustkit.defenses.inner_attack.specification import inner
from robustkit.defenses.weights.batchnorm import modes
from torch.nn import functional as F

from robustkit.primitives import registry
from robustkit.primitives.threat import finer
from tests.defenses.nets import SHORT, batch, changed, digits, net, state, stepper
from tests.problems import trials

EPS = 0.1


def test_an_attack_leaves_buffers_gradients_and_flags_as_they_were():
    network = net().train()
    network.bn1.eval()
    F.cross_entropy(network(digits(0, 8)[0]), digits(0, 8)[1]).backward()
    before, grads = state(network), [weight.grad.clone() for weight in network.parameters()]
    flags = [module.training for module in network.modules()]

    for mode in ("eval", "batch"):
        found = stepper(network, SHORT.but(attack_bn=mode))
        network.train()
        network.bn1.eval()
        found.adversarial(batch(), 1.0)

        assert changed(network, before) == set()
        assert [module.training for module in network.modules()] == flags
        assert all(torch.equal(weight.grad, grad) for weight, grad in zip(network.parameters(), grads, strict=True))


def test_flags_are_put_back_after_an_exception():
    network = net().train()
    network.bn1.eval()
    flags = [module.training for module in network.modules()]

    with pytest.raises(ZeroDivisionError), modes(network, "batch"):
        raise ZeroDivisionError

    assert [module.training for module in network.modules()] == flags


@pytest.mark.parametrize(("mode", "expected"), [("eval", {False}), ("train", {True}), ("batch", {True})])
def test_every_question_of_every_step_meets_the_same_mode(mode, expected):
    network, seen = net(), []
    network.bn1.register_forward_pre_hook(lambda module, inputs: seen.append(module.training))
    found = stepper(network, SHORT.but(attack_bn=mode, attack="pgd:steps=3"))
    for first in (0, 16, 32):
        found.adversarial(batch(first), 1.0)

    assert len(seen) == 9
    assert set(seen) == expected


def test_batch_statistics_are_used_without_being_tracked():
    network = net()
    x, _ = digits(0, 16)
    with torch.no_grad():
        own = network.bn1.train()(network.conv1(x))
        network = net()
        with modes(network, "batch"):
            met = network.bn1(network.conv1(x))

    assert torch.equal(met, own)
    assert changed(network, state(net())) == set()


def test_a_radius_of_nothing_is_clean_training():
    one, other = net(), net()
    stepper(one, SHORT.but(objective="at")).step([batch()], 0.0)
    stepper(other, SHORT.but(objective="clean")).step([batch()], 1.0)

    assert changed(one, state(other)) == set()


def test_an_attack_of_radius_zero_gives_the_images_back():
    x, y = digits(0, 8)
    found = crafted(net(), registry.build("pgd:steps=3", "Linf", 0.0), x, y, torch.arange(8))

    assert torch.equal(found, x)


def test_of_several_restarts_each_image_keeps_its_worst():
    x, y = digits(0, 16)
    key, network = keys_of(0, 0, torch.arange(16)), net()

    def losses(restarts: int) -> torch.Tensor:
        attack = registry.build(f"noise:queries=2,restarts={restarts}", "Linf", 0.3)
        # The noise attack itself climbs nothing; so its points are told apart by the divergence alone.
        climb = objective("trades:1").climb(network(x).detach())
        return climb(network(crafted(network, attack, x, y, key, climb))).detach()

    one, four = losses(1), losses(4)

    assert (four >= one).all()
    assert (four > one).any()
    assert (four == one).any()  # the first restart was the best of some image, the last one not of all


def test_restarts_share_no_noise(monkeypatch):
    x, y = digits(0, 4)
    keys = []
    monkeypatch.setattr(adversary, "_climbed", lambda network, attack, x, y, key, climb: (keys.append(key), x)[1])
    crafted(net(), registry.build("pgd:restarts=4", "L2", 0.5), x, y, keys_of(0, 0, torch.arange(4)))

    # A ball draws from two streams: that of the key, and a finer one beside it.
    streams = torch.cat([*keys, *map(finer, keys)])
    assert len(keys) == 4
    assert len(streams.unique()) == len(streams)


@pytest.mark.parametrize("goal", ["at", "trades:1"])
@pytest.mark.parametrize(
    ("text", "norm", "eps"),
    [("apgd:steps=6", "Linf", 0.2), ("apgd:steps=6", "L2", 1.0), ("apgd:steps=10", "L1", 4.0),
     ("apgd:steps=1", "Linf", 0.2), ("apgd:steps=1", "L1", 4.0), ("square:queries=12", "Linf", 0.3)],
)  # fmt: skip
def test_an_attack_that_keeps_its_best_point_is_learnt_from_there_not_where_it_ended(text, norm, eps, goal):
    x, y = digits(0, 16)
    network, attack = net(), inner(text, norm, eps).attack
    climb = objective(goal).climb(network(x).detach())
    points, losses = [], []

    def ask(point: torch.Tensor) -> torch.Tensor:
        logits = network(point)
        points.append(point.detach())
        losses.append((attack.objective(logits, trials(x, y)) if climb is None else climb(logits)).detach())
        return logits

    found = crafted(ask, attack, x, y, keys_of(0, 0, torch.arange(16)), climb)

    inside = torch.stack([attack.ball.contains(x, point) for point in points])
    met = torch.stack(losses).masked_fill(~inside, -torch.inf)
    expected = torch.stack(points)[met.argmax(0), torch.arange(16)]
    assert len(points) == attack.cost.forwards
    assert torch.equal(found, expected)
    assert not torch.equal(found, points[-1]) or attack.cost.forwards == 2


def test_the_attack_climbs_hard_labels_however_smooth_the_loss_is():
    plain, smooth = net(), net()

    first = stepper(plain, SHORT).adversarial(batch(), 1.0)
    second = stepper(smooth, SHORT.but(label_smoothing=0.3)).adversarial(batch(), 1.0)

    assert torch.equal(first, second)


def test_trades_leaves_the_clean_image_though_its_gradient_is_zero_there():
    found = stepper(net(), SHORT.but(objective="trades:6", attack="bim:steps=5"), EPS).adversarial(batch(), 1.0)
    clean = net()(batch().x)
    gain = objective("trades:6").climb(clean)(net()(found))
    noise = objective("trades:6").climb(clean)(net()(batch().x + 1e-3))

    assert gain.mean() > 100 * noise.mean()


def test_noise_belongs_to_an_image_not_to_its_batch():
    network = net()
    whole = stepper(network).adversarial(batch(0, 16), 1.0)
    part = stepper(network).adversarial(batch(8, 8), 1.0)

    torch.testing.assert_close(whole[8:], part, atol=1e-6, rtol=0)


def test_no_gradient_in_the_weights_is_computed():
    network, seen = net(), []
    for weight in network.parameters():
        weight.register_hook(seen.append)

    crafted(network, registry.build("pgd:steps=2", "Linf", EPS), *digits(0, 8), torch.arange(8))

    assert seen == []
