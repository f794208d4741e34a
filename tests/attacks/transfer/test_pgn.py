import pytest
import torch
from robustkit.attacks import PGN

from tests.attacks.transfer.copies import driven, followed, gradient, offset, small, trials_of
from tests.problems import images, seen, trials


def test_it_mixes_the_gradients_of_neighbours_with_those_one_step_downhill():
    made, copies, share = small(), 3, 0.3
    at, trial = gradient(made), trials_of(made)

    def direction(step, point, velocity):
        total = 0
        for copy in range(copies):
            near = point + offset(trial, 2 * (step * copies + copy), 0.2)
            first = at(near)
            second = at(near - 0.1 / 3 * first / first.abs().mean((1, 2, 3), keepdim=True))
            total = total + (1 - share) * first + share * second
        return total / copies

    method = PGN(0.1, copies=copies, neighborhood=2.0, balance=share, steps=3, loss="ce")

    assert torch.allclose(driven(method, made), followed(made.x, direction, 0.1), atol=1e-6)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_the_second_query_is_one_step_downhill_of_the_first(norm):
    method, grad = PGN(0.4, norm, steps=4), images(3, 2, 5, 5, seed=1) - 0.5
    state = method.init(trials(images(3, 2, 5, 5)))
    way = (method.step(state, seen([0.0] * 3, grad)).query - state.query).flatten(1)
    length = way.abs().mean(1) if norm == "Linf" else way.norm(dim=1)

    assert length.tolist() == pytest.approx([0.1] * 3, rel=1e-4)
    assert torch.nn.functional.cosine_similarity(way, -grad.flatten(1)).tolist() == pytest.approx([1.0] * 3, rel=1e-4)
