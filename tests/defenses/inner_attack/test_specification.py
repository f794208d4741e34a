"""The attacks that a training can use, by text or as objects."""

import pytest
import torch
from robustkit.attacks.gradient.pgd import PGD
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.inner_attack import specification
from robustkit.defenses.inner_attack.crafting import craft, noise_keys
from robustkit.defenses.inner_attack.nfgsm import NFGSM
from robustkit.defenses.inner_attack.specification import inner_attack, scaled, stronger

from robustkit.errors import UserError
from robustkit.primitives import registry
from tests.defenses.nets import SHORT, TRAIN, VAL, digits, net, same_weights

EPS = 0.1
KEYS = noise_keys(0, 0, torch.arange(16))


class Mine(PGD):
    """An attack of a user, which the registry has no name for."""


@pytest.mark.parametrize(
    "text", ["pgd:steps=3", "fgsm", "rs-fgsm", "apgd:steps=4", "bim:steps=2", "mifgsm:steps=2", "noise:queries=2",
             "square:queries=4", "pgd:steps=2,restarts=2", "free:3"],
)  # fmt: skip
def test_images_are_in_the_ball_and_in_the_box(text):
    x, y = digits(0, 16)
    x_adv = craft(net(), inner_attack(text, "Linf", EPS).attack, x, y, KEYS)

    assert not torch.equal(x_adv, x)
    assert (x_adv - x).abs().max() <= EPS + 1e-6
    assert x_adv.min() >= 0
    assert x_adv.max() <= 1


def test_nfgsm_is_noise_and_one_unprojected_step():
    x, y = digits(0, 16)
    start = registry.build("pgd", "Linf", 2 * EPS).ball.random(x, KEYS, 0).requires_grad_()
    logits = net()(start)
    others = logits.scatter(1, y[:, None], -torch.inf).logsumexp(1) - logits.gather(1, y[:, None])[:, 0]
    (grad,) = torch.autograd.grad(others.sum(), start)

    x_adv = craft(net(), NFGSM(EPS, noise=2.0), x, y, KEYS)

    torch.testing.assert_close(x_adv, (start + EPS * grad.sign()).clamp(0, 1).detach())
    assert 2.5 * EPS < (x_adv - x).abs().max() <= 3 * EPS + 1e-6
    assert x_adv.min() >= 0
    assert x_adv.max() <= 1


def test_attacks_made_for_training_are_not_in_the_registry():
    assert not {"nfgsm", "n-fgsm", "rs-fgsm", "free"} & set(registry.names())


def test_rs_fgsm_steps_by_five_quarters_of_the_radius():
    attack = inner_attack("rs-fgsm", "Linf", "8/255").attack

    assert (attack.steps, attack.random_start) == (1, True)
    assert attack.step_size == pytest.approx(1.25 * 8 / 255)


def test_the_step_size_is_scaled_with_the_radius():
    half = scaled(inner_attack("pgd:steps=2,step_size=0.04", "Linf", 0.1).attack, 0.5)

    assert (half.ball.eps, half.step_length) == (0.05, 0.02)
    assert scaled(inner_attack("pgd:steps=2", "Linf", 0.1).attack, 0.5).step_length == pytest.approx(2.5 * 0.05 / 2)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("fgsm", "pgd:steps=2,step_size=0.05"), ("rs-fgsm", "pgd:steps=2,step_size=0.05"),
        ("nfgsm", "pgd:steps=2,step_size=0.05"), ("free:4", "pgd:steps=2,step_size=0.05"),
        ("pgd:steps=2", "pgd:steps=4"), ("pgd:steps=7", None), ("noise:queries=5", None),
        (Mine(EPS, steps=2), "mine:steps=4"),
    ],
    ids=str,
)  # fmt: skip
def test_after_a_weak_attack_comes_a_stronger_one(spec, expected):
    following = stronger(inner_attack(spec, "Linf", EPS))

    assert (following and registry.spelled(following.attack)) == expected
    assert following is None or following.replays == 1


def test_a_text_for_the_registry_keeps_its_case(monkeypatch):
    seen = []
    monkeypatch.setattr(registry, "build", lambda text, norm, eps: seen.append(text) or PGD(eps, norm))
    specification.inner_attack("My Attacks/mine.py:MyAttack:steps=5", "Linf", EPS)

    assert seen == ["My Attacks/mine.py:MyAttack:steps=5"]


@pytest.mark.usefixtures("judged_quickly")
def test_an_attack_object_trains_like_its_text():
    one, other = net(), net()
    recipe: Recipe = SHORT.but(epochs=1)
    first = finetune(one, TRAIN, VAL, eps=EPS, recipe=recipe)
    second = finetune(other, TRAIN, VAL, eps=EPS, recipe=recipe.but(attack=PGD(EPS, steps=2)))

    assert same_weights(one, other)
    assert first.best == second.best


@pytest.mark.parametrize(
    ("spec", "eps", "words"),
    [
        ("pgd:steps=7", 0, "eps of 0"), ("nfgsm", 0, "eps of 0"), ("free:4", "0/255", "eps of 0"),
        ("pgd:step_size=0", EPS, "size 0"), ("pgd:step_size=0,random_start=no", EPS, "size 0"),
        ("apgd-t", EPS, "targets"), ("sgm", EPS, "hooks"), ("fab", EPS, "gradients"),
        ("free", EPS, "replays"), ("free:1", EPS, "replays"),
        ("free:x", EPS, "replays"), ("nfgsm:k=2", EPS, "noise"), ("nfgsm:noise=20", EPS, "exceeds"),
        ("rs-fgsm:2", EPS, "no hyper-parameters"), ("pdg", EPS, "pgd"), ("pgd:stepz=3", EPS, "steps"),
        ("pgd", 3, "255"), ("nfgsm:noise=-1", EPS, "noise"), ("standard", EPS, "attack"),
        ("pgd:steps=7", "minimum", "needs a radius"), ("rs-fgsm", "minimum", "needs a radius"),
        (PGD(0.2), EPS, "give both the same"), (PGD(EPS, "L2"), EPS, "give both the same"),
    ],
    ids=str,
)  # fmt: skip
def test_an_attack_that_cannot_be_used_is_refused(spec, eps, words):
    with pytest.raises(UserError, match=words):
        inner_attack(spec, "Linf", eps)
