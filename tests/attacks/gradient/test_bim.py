import torch
from robustkit.attacks import BIM, FGSM, PGD

from robustkit import attack
from tests.problems import problem


def test_one_step_is_fgsm():
    made = problem("mlp", 1, 8, 8)
    bim, fgsm = (attack(made.model, made.x, made.y, method) for method in (BIM(0.05, steps=1), FGSM(0.05)))

    assert torch.equal(bim.x_adv, fgsm.x_adv)


def test_it_is_pgd_from_the_image_itself():
    made = problem("mlp", 1, 8, 8)
    methods = (BIM(0.04, steps=8), PGD(0.04, steps=8, step_size=0.005, random_start=False))
    bim, pgd = (attack(made.model, made.x, made.y, method) for method in methods)

    assert torch.equal(bim.x_adv, pgd.x_adv)
    assert torch.equal(bim.forwards, pgd.forwards)


def test_all_steps_together_reach_the_surface():
    made = problem("linear", 4, classes=2)
    x = made.x * 0.5 + 0.25
    result = attack(made.model, x, made.model(x).argmax(1), BIM(0.01, steps=8))
    survivors = result.clean_correct & ~result.success

    assert survivors.any()
    assert torch.allclose((result.x_adv - x)[survivors].abs(), torch.tensor(0.01), atol=1e-6)
