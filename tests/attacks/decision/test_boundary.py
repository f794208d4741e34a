import torch
from robustkit.attacks import Boundary

from robustkit import attack
from tests.attacks.decision.driven import aimed, driven
from tests.attacks.linear import linear
from tests.problems import problem


def test_the_nearest_error_of_a_linear_classifier_is_found():
    made = linear(2, values=6, count=20)
    state = driven(Boundary(0.1, "L2", queries=300), made.model, aimed(made.x, made.y))
    times = state.distance / made.distance["L2"]

    assert times.min() > 1 - 1e-3
    assert times.max() < 1.01


def test_a_second_run_gives_the_same_points():
    # Foolbox's issue 243: with its global generators, no two runs were alike.
    made = problem("mlp", 12)
    torch.manual_seed(1)
    first = attack(made.model, made.x, made.y, Boundary(0.01, "L2", queries=50))
    torch.manual_seed(2)
    second = attack(made.model, made.x, made.y, Boundary(0.01, "L2", queries=50), batch_size=3)

    assert torch.equal(first.x_adv, second.x_adv)


def test_a_proposal_is_a_step_along_the_sphere_and_then_a_step_towards_the_image():
    made = linear(2)
    method = Boundary(0.1, "L2", sideways=0.2, inward=0.1)
    state = method.init(aimed(made.x, made.y))
    start = made.x + 0.1 * torch.nn.functional.normalize(state.query - 0.5)
    state = type(state)(**{**vars(state), "at": start})
    sphere, proposal = method._on_sphere(state), method._proposal(state)

    assert torch.allclose((sphere - made.x).norm(dim=1), torch.tensor(0.1), rtol=1e-4)
    assert torch.allclose((proposal - made.x).norm(dim=1), torch.tensor(0.09), rtol=1e-4)
    cosine = torch.cosine_similarity(sphere - made.x, start - made.x)
    assert torch.allclose(cosine, torch.tensor(1 / (1 + 0.2**2) ** 0.5), rtol=1e-4)


def test_steps_grow_where_errors_are_many_and_shrink_where_they_are_few():
    method = Boundary(0.1, "L2", adaptation=2.0)
    length, asked = torch.tensor([0.1, 0.1, 0.1]), torch.tensor([True, True, False])
    made = method._adapted(length, asked, torch.tensor([True, False, True]), 3)

    assert torch.allclose(made, torch.tensor([0.8, 0.05, 0.1]))
