import torch
from robustkit.attacks import VNIFGSM

from tests.attacks.transfer.copies import driven, followed, gradient, offset, small, trials_of


def test_the_gradient_is_that_of_the_look_ahead_point_and_the_neighbours_are_the_iterates():
    made, copies = small(), 2
    at, trial, variance = gradient(made), trials_of(made), [torch.zeros_like(made.x)]

    def direction(step, point, velocity):
        grad, first = at(point + 0.1 / 3 * velocity), step * (copies + 1) + 1
        corrected = grad + variance[-1]
        neighbours = [at(point + offset(trial, number, 0.2)) for number in range(first, first + copies)]
        variance.append(sum(neighbours) / copies - grad)
        return corrected

    method = VNIFGSM(0.1, copies=copies, neighborhood=2.0, steps=3, loss="ce")

    assert torch.allclose(driven(method, made), followed(made.x, direction, 0.1), atol=1e-6)
