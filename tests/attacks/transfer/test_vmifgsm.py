import pytest
import torch
from robustkit.attacks import VMIFGSM

from tests.attacks.transfer.copies import driven, followed, gradient, offset, small, trials_of
from tests.problems import images, trials


def test_gradients_are_corrected_by_the_neighbours_of_the_last_iterate():
    made, copies = small(), 3
    at, trial, variance = gradient(made), trials_of(made), [torch.zeros_like(made.x)]

    def direction(step, point, velocity):
        grad, first = at(point), step * (copies + 1) + 1
        corrected = grad + variance[-1]
        neighbours = [at(point + offset(trial, number, 0.15)) for number in range(first, first + copies)]
        variance.append(sum(neighbours) / copies - grad)
        return corrected

    point = followed(made.x, direction, 0.1)

    assert torch.allclose(driven(VMIFGSM(0.1, copies=copies, steps=3, loss="ce"), made), point, atol=1e-6)


def test_no_neighbour_is_queried_after_the_last_step():
    assert VMIFGSM(0.1, copies=20, steps=10).cost.backwards == 10 + 9 * 20


@pytest.mark.parametrize(("norm", "radius"), [("Linf", 0.1), ("L2", 0.1 / 192**0.5)])
def test_neighbours_lie_in_the_given_box(norm, radius):
    method, trial = VMIFGSM(0.1, norm), trials(images(50, 3, 8, 8))
    away = method.offset(trial, torch.ones(50, dtype=torch.int64), 1.5).abs().max()

    assert 1.49 * radius < away <= 1.5 * radius
