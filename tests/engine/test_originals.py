"""What the caller gets, checked as the caller would: own units, own type, float64 arithmetic."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from robustkit.attacks import FGSM, PGD, Noise, Square
from torch import Tensor, nn

from robustkit import Classifier, attack
from robustkit.classifier.smoothing import Smoothing
from robustkit.engine.attack_tensors import Attacked
from robustkit.primitives.ball import NormName
from robustkit.primitives.protocol import Attack
from robustkit.primitives.rounding import scaled
from robustkit.testing.doubles import ScalingInput
from tests.problems import filled, images

MNIST = (-0.4242, 2.8215)
EPS = {"Linf": 8 / 255, "L2": 0.5, "L1": 1.5, "L0": 3.0}
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

lows, sizes = st.floats(-4, 4), st.floats(0.5, 8)
any_bounds = st.one_of(
    st.sampled_from([(0.0, 1.0), MNIST, (-1.0, 1.0), (0.0, 255.0), (-0.5, 0.5)]),
    st.tuples(lows, sizes).map(lambda pair: (pair[0], pair[0] + pair[1])),
)


def linear(bounds: tuple[float, float], dtype: torch.dtype = torch.float32) -> nn.Module:
    low, high = bounds
    network = filled(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)))
    with torch.no_grad():
        network[1].bias -= (low + high) / 2 / (high - low) * network[1].weight.sum(1)
    return ScalingInput(network, 1 / (high - low)).to(dtype).eval()


def pictures(bounds: tuple[float, float], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Images in the bounds, many values at their ends, some beyond them by less than what is refused."""
    low, high = bounds
    x = (images(8, 1, 6, 6, seed=seed).double() * 1.4 - 0.2).clamp(0, 1) * (high - low) + low
    x = x.to(dtype)
    slack = 1e-6 * (high - low)
    return torch.where((x.double() < low - slack) | (x.double() > high + slack), (low + high) / 2, x)


def distance(norm: NormName, x: Tensor, point: Tensor) -> Tensor:
    change = (point.double() - x.double()).flatten(1)
    return change.norm(p={"Linf": torch.inf, "L2": 2, "L1": 1, "L0": 0}[norm], dim=1)


def check(method: Attack, bounds: tuple[float, float], model: nn.Module, x: Tensor, result: Attacked) -> None:
    (low, high), norm, point = bounds, method.ball.norm, result.x_adv
    assert (distance(norm, x, point) <= method.ball.eps * (1 if norm == "L0" else high - low)).all()
    assert (((point.double() >= low) & (point.double() <= high)) | (point == x)).all()
    untouched = ~result.clean_correct
    assert torch.equal(point[untouched], x[untouched].to(point))
    weights = next(model.parameters()).dtype
    scores = model(point.to(weights)).float()
    first, second = scores.topk(2, 1).values.unbind(1)
    # Closer to the boundary the batch decides.
    clear = first - second > 1e-5 * scores.abs().amax(1)
    assert torch.equal(result.prediction[clear], scores.argmax(1)[clear])


@settings(max_examples=8, derandomize=True)
@given(
    bounds=any_bounds,
    norm=st.sampled_from(sorted(EPS)),
    images_dtype=st.sampled_from(FLOATS),
    weights_dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 9),
    share=st.sampled_from([0.01, 0.3, 1.0]),
)
def test_points_leave_neither_the_ball_nor_the_bounds_in_the_callers_units_and_type(
    bounds, norm, images_dtype, weights_dtype, seed, share
):
    model, x = linear(bounds, weights_dtype), pictures(bounds, images_dtype, seed)
    y = model(x.to(weights_dtype)).argmax(1)
    y[::3] = (y[::3] + 1) % 3
    method = PGD(EPS[norm] if norm == "L0" else share * EPS[norm], norm, steps=3)
    result = attack(model, x, y, method, bounds=bounds)

    assert result.x_adv.dtype == torch.promote_types(images_dtype, weights_dtype)
    check(method, bounds, model, x, result)


@pytest.mark.parametrize(
    "method", [FGSM(8 / 255), PGD(3, "L0", steps=4), Square(1.5, "L1", queries=9), Noise(0.5, "L2")]
)
def test_with_the_bounds_of_normalised_mnist_the_promise_holds(method):
    # Linf was exceeded by 3e-7, and of L0's 3 values 432 changed.
    model, x = linear(MNIST), pictures(MNIST, torch.float32)
    y = model(x).argmax(1)
    y[0] = (y[0] + 1) % 3
    result = attack(model, x, y, method, bounds=MNIST)

    check(method, MNIST, model, x, result)
    assert result.clean_correct.tolist() == [False] + [True] * 7


def test_float64_images_stay_within_eps_of_themselves_on_an_fp32_model():
    # All were beyond 8/255 of the images, by the rounding to fp32.
    model, x = linear((0, 1)), pictures((0, 1), torch.float32).double() / 3 + 0.1
    method = PGD(8 / 255, steps=4)
    result = attack(model, x, model(x.float()).argmax(1), method)

    assert result.x_adv.dtype == torch.float64
    check(method, (0, 1), model, x, result)
    assert (distance("Linf", x, result.x_adv) > 0.99 * 8 / 255).all()


def test_images_of_a_half_precision_model_are_judged_in_half_precision():
    model, x = linear((0, 1), torch.float16), pictures((0, 1), torch.float16)
    method = PGD(0.1, steps=4)
    result = attack(model, x, model(x).argmax(1), method)

    assert result.x_adv.dtype == torch.float16
    check(method, (0, 1), model, x, result)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), MNIST])
def test_an_image_that_is_not_attacked_keeps_every_bit(bounds):
    # Negative zeros, and values beyond the bounds by rounding, are in practice what a normalisation leaves.
    x = pictures(bounds, torch.float32)
    x[:, 0, 0, :3] = torch.tensor([-0.0, bounds[1] * (1 + 2e-7), bounds[0] - 2e-7])
    model = linear(bounds)
    result = attack(model, x, (model(x).argmax(1) + 1) % 3, PGD(0.1, steps=2), bounds=bounds)

    assert result.x_adv.numpy().tobytes() == x.numpy().tobytes()
    assert result.x_adv.data_ptr() != x.data_ptr()


def test_a_radius_of_zero_returns_the_images_themselves():
    x = pictures(MNIST, torch.float32)
    result = attack(linear(MNIST), x, linear(MNIST)(x).argmax(1), PGD(0, steps=2), bounds=MNIST)

    assert result.x_adv.numpy().tobytes() == x.numpy().tobytes()


def test_a_smoothed_model_has_the_same_noise_in_any_units():
    x, model = pictures((0, 1), torch.float32), linear((0, 1))
    y = model(x).argmax(1)
    plain, wide = (
        attack(
            Classifier(ScalingInput(model, 1 / size), bounds=(0, size), smoothing=Smoothing(0.1, n=100), eot=2),
            x * size,
            y,
            PGD(0.1, steps=2),
        )
        for size in (1, 256)
    )

    assert torch.equal(plain.x_adv * 256, wide.x_adv)
    assert torch.equal(plain.prediction, wide.prediction)


def test_the_radius_in_other_units_is_never_too_large():
    for eps in (8 / 255, 0.1, 0.3, 1.0):
        for high in (0.1, 0.7, 3.2457, 255.0, 1e-3):
            assert scaled(eps, (0.0, high)) <= eps * high
            assert scaled(eps, (0.0, high)) / high <= eps
