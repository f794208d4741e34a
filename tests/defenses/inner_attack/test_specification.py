"""The attacks that a training can take, by text."""

import pytest
import torch
from robustkit.defenses.inner_attack.crafting import crafted, keys_of
from robustkit.defenses.inner_attack.nfgsm import NFGSM
from robustkit.defenses.inner_attack.specification import inner, scaled, stronger

from robustkit.errors import UserError
from robustkit.primitives import registry
from tests.defenses.nets import digits, net

EPS = 0.1


def attacked(text: str, eps: float = EPS) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = digits(0, 16)
    return x, crafted(net(), inner(text, "Linf", eps).attack, x, y, keys_of(0, 0, torch.arange(16)))


@pytest.mark.parametrize(
    "text", ["pgd:steps=3", "fgsm", "rs-fgsm", "apgd:steps=4", "bim:steps=2", "mifgsm:steps=2", "noise:queries=2",
             "square:queries=4", "pgd:steps=2,restarts=2", "free:3"],
)  # fmt: skip
def test_images_lie_in_the_ball_and_in_the_box(text):
    x, found = attacked(text)

    assert not torch.equal(found, x)
    assert (found - x).abs().max() <= EPS + 1e-6
    assert found.min() >= 0
    assert found.max() <= 1


def test_nfgsm_is_noise_and_one_unprojected_step():
    x, y = digits(0, 16)
    attack, key = NFGSM(EPS, noise=2.0), keys_of(0, 0, torch.arange(16))
    start = registry.build("pgd", "Linf", 2 * EPS).ball.random(x, key, 0).requires_grad_()
    logits = net()(start)
    rest = logits.scatter(1, y[:, None], -torch.inf).logsumexp(1) - logits.gather(1, y[:, None])[:, 0]
    (grad,) = torch.autograd.grad(rest.sum(), start)

    found = crafted(net(), attack, x, y, key)

    torch.testing.assert_close(found, (start + EPS * grad.sign()).clamp(0, 1).detach())
    assert 2.5 * EPS < (found - x).abs().max() <= 3 * EPS + 1e-6
    assert found.min() >= 0
    assert found.max() <= 1


def test_nfgsm_is_no_attack_of_an_evaluation():
    assert not {"nfgsm", "n-fgsm", "rs-fgsm", "free"} & set(registry.names())


def test_rs_fgsm_steps_by_five_quarters_of_the_radius():
    found = inner("rs-fgsm", "Linf", "8/255").attack

    assert (found.steps, found.random_start) == (1, True)
    assert found.step_size == pytest.approx(1.25 * 8 / 255)


def test_a_share_of_the_radius_takes_the_step_size_along():
    half = scaled(inner("pgd:steps=2,step_size=0.04", "Linf", 0.1).attack, 0.5)

    assert (half.ball.eps, half.step_length) == (0.05, 0.02)
    assert scaled(inner("pgd:steps=2", "Linf", 0.1).attack, 0.5).step_length == pytest.approx(2.5 * 0.05 / 2)


@pytest.mark.parametrize(
    ("text", "next_one"),
    [
        ("fgsm", "pgd:steps=2,step_size=0.05"), ("rs-fgsm", "pgd:steps=2,step_size=0.05"),
        ("nfgsm", "pgd:steps=2,step_size=0.05"), ("free:4", "pgd:steps=2,step_size=0.05"),
        ("pgd:steps=2", "pgd:steps=4"), ("pgd:steps=7", None), ("noise:queries=5", None),
    ],
)  # fmt: skip
def test_after_a_weak_attack_comes_a_stronger_one(text, next_one):
    found = stronger(inner(text, "Linf", EPS))

    assert (found and registry.spelled(found.attack)) == next_one
    assert found is None or found.replays == 1


@pytest.mark.parametrize(
    ("text", "eps", "words"),
    [
        ("pgd:steps=7", 0, "eps of 0"), ("nfgsm", 0, "eps of 0"), ("free:4", "0/255", "eps of 0"),
        ("pgd:step_size=0", EPS, "size 0"), ("pgd:step_size=0,random_start=no", EPS, "size 0"),
        ("apgd-t", EPS, "targets"), ("sgm", EPS, "hooks"), ("free", EPS, "replays"), ("free:1", EPS, "replays"),
        ("free:x", EPS, "replays"), ("nfgsm:k=2", EPS, "noise"), ("nfgsm:noise=20", EPS, "wider"),
        ("rs-fgsm:2", EPS, "nothing to set"), ("pdg", EPS, "pgd"), ("pgd:stepz=3", EPS, "steps"), ("pgd", 3, "255"),
        ("nfgsm:noise=-1", EPS, "noise"), ("standard", EPS, "attack"),
    ],
)  # fmt: skip
def test_an_attack_that_would_not_do_is_refused(text, eps, words):
    with pytest.raises(UserError, match=words):
        inner(text, "Linf", eps)
