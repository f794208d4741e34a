import pytest
import torch
from robustkit.attacks import ContrastReduction, GaussianBlur, GaussianNoise, SaltAndPepper, UniformNoise
from robustkit.attacks.decision.gaussian_blur import blurred
from scipy.ndimage import gaussian_filter
from torch import nn

from robustkit import attack
from robustkit.primitives.ball import NORMS
from robustkit.primitives.threat import ball
from tests.problems import images, problem, seen, trials


class Bright(nn.Module):
    """Class 1 where the first value is at least a bound."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = x.flatten(1)[:, 0]
        return torch.stack([self.bound - value, value - self.bound], 1)


def test_the_boundary_on_the_way_to_grey_is_found_in_closed_form():
    x = torch.zeros(3, 1, 4, 4)
    result = attack(Bright(0.3), x, torch.zeros(3).long(), ContrastReduction("minimum", "Linf", steps=10))

    # The first value reaches 0.3 where all values do.
    assert result.success.all()
    assert (result.x_adv - 0.3).abs().max() < 0.5 / 10 / 2**9


def test_with_a_radius_the_walk_ends_at_the_surface_of_the_ball():
    x = images(4, 1, 8, 8)
    method = ContrastReduction(0.2, "L2")
    state = method.init(trials(x))
    last = method.member(x, x, state.most)

    torch.testing.assert_close(ball("L2", 0.2).distance(x, last), torch.full((4,), 0.2).double(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0, 4.0, 30.0])
def test_the_filter_is_that_of_scipy(sigma):
    x = images(2, 3, 9, 13).double()
    expected = torch.from_numpy(gaussian_filter(x.numpy(), [0, 0, sigma, sigma]))

    torch.testing.assert_close(blurred(x, torch.full((2,), sigma).double()), expected)


def test_the_nearest_blur_is_found_between_two_steps():
    made = problem("cnn", 1, 8, 8, count=8)
    found = [attack(made.model, made.x, made.y, GaussianBlur("minimum", "L2", steps=20, halvings=halvings))
             for halvings in (0, 10)]  # fmt: skip
    coarse, fine = ((each.x_adv - made.x).flatten(1).norm(dim=1)[each.success] for each in found)

    assert torch.equal(found[0].success, found[1].success)
    assert found[0].success.any()
    assert (fine < coarse).all()


def test_salt_and_pepper_grows_pixel_by_pixel():
    method, x = SaltAndPepper("minimum", "L0"), images(2, 3, 6, 6)
    noise = method.family(trials(x), torch.zeros(2).long())
    few, many = (method.member(x, noise, torch.full((2,), share)) for share in (0.2, 0.6))
    changed = few != x

    assert torch.equal(few[changed], many[changed])
    assert ((few == 0) | (few == 1) | ~changed).all()
    assert torch.equal(changed[:, :1].expand_as(changed), changed)  # all channels of a pixel
    assert changed.sum() < (many != x).sum()


@pytest.mark.parametrize(("kind", "norm"), [(GaussianNoise, "L2"), (UniformNoise, "L2"), (UniformNoise, "Linf")])
def test_noise_is_as_long_as_the_radius_after_it_was_cut_to_the_box(kind, norm):
    # foolbox divides by the largest value without its sign, so that half of its noise is longer than Linf allows.
    x = images(4, 3, 6, 6).round()  # half of all noise is cut off
    method = kind(0.4, norm)
    query = method.init(trials(x)).query
    length = ball(norm, 0.4).distance(x, query)

    assert (length <= 0.4).all()
    assert (length > 0.4 * (1 - 1e-3)).all()
    assert query.min() >= 0
    assert query.max() <= 1


def test_later_noise_only_goes_as_far_as_the_nearest_error():
    x, method = torch.full((1, 16), 0.5), GaussianNoise("minimum", "L2", queries=60)
    state, lengths = method.init(trials(x)), []
    while not state.done.all():
        wrong = float(ball("L2", 1).distance(x, state.query)) > 0.3
        lengths.append(float(ball("L2", 1).distance(x, state.query)))
        state = method.step(state, seen([0.0], torch.zeros(1, 0), label=int(wrong)))

    assert max(lengths[12:]) < 0.301
    assert float(state.distance) == pytest.approx(0.3, rel=1e-2)


def test_none_of_them_sees_more_than_labels():
    for kind in (ContrastReduction, GaussianBlur, SaltAndPepper, GaussianNoise, UniformNoise):
        assert kind.sees == "labels"
        assert kind.seeks_nearest
        assert set(kind.norms) <= set(NORMS)
