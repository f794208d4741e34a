import torch
from robustkit.attacks import PGD, StAdv
from robustkit.attacks.spatial._total_variation import roughness, roughness_slope

from robustkit import attack
from tests.problems import images, problem


def test_the_roughness_of_a_flow_is_the_formula_of_the_paper():
    flow = images(2, 2, 3, 4).double()
    total = torch.zeros(2).double()
    for row in range(3):
        for column in range(4):
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                if 0 <= row + down < 3 and 0 <= column + right < 4:
                    away = flow[:, :, row, column] - flow[:, :, row + down, column + right]
                    total += away.square().sum(1).sqrt()

    torch.testing.assert_close(roughness(flow), total, atol=1e-6, rtol=0)


def test_its_slope_is_its_gradient():
    flow = images(2, 2, 4, 5).double().requires_grad_()
    (grad,) = torch.autograd.grad(roughness(flow).sum(), flow)

    torch.testing.assert_close(roughness_slope(flow), grad)


def test_a_smooth_flow_is_smoother_than_that_of_pgd():
    made = problem("cnn", 1, 12, 12, count=6)
    smooth = attack(made.model, made.x, made.y, StAdv(0.3, "flow", steps=20, smoothness=0.05))
    rough = attack(made.model, made.x, made.y, PGD(0.3, "flow", steps=20))

    assert smooth.success.any()
    assert roughness(smooth.parameters).mean() < 0.8 * roughness(rough.parameters).mean()
