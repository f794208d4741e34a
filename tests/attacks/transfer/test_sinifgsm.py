import torch
from robustkit.attacks import SINIFGSM

from tests.attacks.transfer.copies import driven, followed, gradient, small


def test_it_averages_the_gradients_of_halved_look_ahead_points():
    made, step_size = small(), 0.1 / 3
    at = gradient(made)

    def direction(step, point, velocity):
        ahead = point + step_size * velocity
        return sum(at(ahead, lambda x, part=2.0**-each: x * part) for each in range(4)) / 4

    method = SINIFGSM(0.1, scales=4, steps=3, loss="ce")

    assert method.cost.backwards == 12
    assert torch.allclose(driven(method, made), followed(made.x, direction, 0.1), atol=1e-6)
