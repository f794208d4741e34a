import pytest
import torch
from robustkit.attacks import SSA
from robustkit.attacks.transfer.ssa import transform
from scipy.fft import dctn, idctn

from robustkit import UserError
from robustkit.primitives import noise
from tests.attacks.transfer.copies import driven, followed, gradient, small, trials_of
from tests.problems import images, trials


def test_the_transform_is_scipys_and_its_inverse_returns():
    x = images(3, 2, 9, 6)

    assert torch.allclose(transform(x), torch.from_numpy(dctn(x.numpy(), axes=(2, 3), norm="ortho")), atol=1e-5)
    assert torch.allclose(transform(transform(x), inverse=True), x, atol=1e-6)


def test_every_coefficient_of_a_copy_is_multiplied_by_a_number_around_one():
    x = 0.5 + images(20, 1, 8, 8) / 2
    copy = SSA(0.1, sigma=0, rho=0.3).init(trials(x)).query
    factor = (transform(copy) / transform(x)).flatten()
    factor = factor[transform(x).flatten().abs() > 0.1]

    assert 0.7 <= factor.min() < 0.72
    assert 1.28 < factor.max() <= 1.3


def test_the_noise_has_the_given_deviation_in_units_of_eps():
    x = images(20, 3, 16, 16)

    assert (SSA(0.1, sigma=2, rho=0).init(trials(x)).query - x).std() == pytest.approx(0.2, rel=0.02)


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_it_averages_the_gradients_of_copies_with_a_random_spectrum(variant):
    made, copies = small(), 3
    at, trial = gradient(made), trials_of(made)

    def copy(x, number):
        factor = 0.5 + noise.uniform(trial.key, number, x.shape[1:])
        return transform(transform(x) * factor, inverse=True)

    def direction(step, point, velocity):
        numbers = range(step * copies, (step + 1) * copies)
        if variant == "paper":
            return sum(at(point, lambda x, number=number: copy(x, number)) for number in numbers) / copies
        return sum(at(copy(point, number)) for number in numbers) / copies

    method = SSA(0.1, copies=copies, sigma=0, steps=3, loss="ce", variant=variant)

    assert torch.allclose(driven(method, made), followed(made.x, direction, 0.1), atol=1e-6)


def test_the_transform_is_the_one_of_scipy_backwards_too():
    x, grad = images(2, 1, 4, 5).requires_grad_(), images(2, 1, 4, 5, seed=1)
    back = torch.autograd.grad(transform(x), x, grad)[0]

    assert torch.allclose(back, torch.from_numpy(idctn(grad.numpy(), axes=(2, 3), norm="ortho")), atol=1e-6)


def test_an_unknown_variant_is_named():
    with pytest.raises(UserError, match="variant of SSA"):
        SSA(0.1, variant="papers")
