import pytest
import torch

from robustkit.tracing.measures import attribution, cosine, quotient, relative_change, sign_flips
from tests.problems import images

A = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
B = torch.tensor([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])


def test_relative_change_by_hand():
    assert relative_change(A, B).tolist() == [0, 5**0.5, 0, torch.inf]


def test_cosine_by_hand():
    assert cosine(A, B)[:3].tolist() == [1, 0, 1]
    assert cosine(A, B)[3].isnan()
    assert cosine(A[:1], -B[:1]).item() == pytest.approx(-1)


def test_equal_outputs_have_a_cosine_of_exactly_one():
    a = images(32, 3, 5, 5)

    assert torch.equal(cosine(a, a.clone()), torch.ones(32, dtype=torch.float64))


def test_sign_flips_counted_by_hand():
    a = torch.tensor([[1.0, -1.0, 0.0, 2.0]])
    b = torch.tensor([[-1.0, -2.0, 3.0, 1.0]])

    assert sign_flips(a, b).item() == 0.5


def test_a_relu_flips_as_often_as_what_goes_into_it():
    a, b = images(4, 50) - 0.5, images(4, 50, seed=1) - 0.5

    assert torch.equal(sign_flips(a, b), sign_flips(a.relu(), b.relu()))


def test_attribution_is_an_inner_product():
    grad = torch.tensor([[1.0, 10.0]] * 4)

    assert attribution(grad, A, B).tolist() == [0, 19, 0, 1]


def test_nothing_over_nothing_is_undefined_and_something_over_nothing_infinite():
    value = quotient(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 4.0]))

    assert value[0].isnan()
    assert value[1:].tolist() == [torch.inf, 0.5]


def test_a_small_change_of_a_large_output_is_measured_exactly():
    a = torch.full((1, 1_000_000), 1000.0)

    assert relative_change(a, a + 2**-10).item() == pytest.approx(2**-10 / 1000, rel=1e-12)
