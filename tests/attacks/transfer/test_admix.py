import torch
from robustkit.attacks import Admix

from tests.attacks.transfer.copies import driven, followed, gradient, small, trials_of
from tests.problems import images, trials


def test_what_is_added_has_the_pixels_of_the_image_and_another_order_in_each_copy():
    x, numbers = images(1, 1, 9, 14).expand(20, -1, -1, -1), torch.zeros(20, dtype=torch.int64)
    added = (Admix(0.1, scales=1, portion=0.5).copied(x, trials(x), numbers) - x) / 0.5

    assert torch.allclose(added.flatten(1).sort(1).values, x.flatten(1).sort(1).values, atol=1e-6)
    assert len({tuple(each.flatten().tolist()) for each in added}) == 20


def test_all_scales_of_a_copy_have_the_same_other_picture():
    x = images(2, 3, 8, 8)
    method = Admix(0.1, scales=3)
    first, half, quarter, other = (method.copied(x, trials(x), torch.full((2,), number)) for number in range(4))

    assert torch.equal(first / 2, half)
    assert torch.equal(first / 4, quarter)
    assert not torch.equal(first, other)


def test_it_averages_the_gradients_of_its_copies():
    made = small()
    at, trial = gradient(made), trials_of(made)
    method = Admix(0.1, copies=2, scales=2, steps=3, loss="ce")

    def direction(step, point, velocity):
        numbers = [torch.full((4,), number) for number in range(4 * step, 4 * step + 4)]
        return sum(at(point, lambda x, number=number: method.copied(x, trial, number)) for number in numbers) / 4

    assert torch.allclose(driven(method, made), followed(made.x, direction, 0.1), atol=1e-6)
