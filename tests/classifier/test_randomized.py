import random

import numpy as np
import pytest
import torch
from robustkit.attacks import FGSM, PGD, Square
from torch import Tensor, nn

import robustkit
from robustkit.classifier import randomized as draws
from robustkit.classifier.classifier import Classifier
from robustkit.errors import UserError
from robustkit.primitives.protocol import Trials
from tests.problems import images, jobs_of, outcomes, problem, same


class Noisy(nn.Module):
    """Adds noise from one of the three generators that models draw from."""

    def __init__(self, model: nn.Module, source: str = "torch", spread: float = 0.2) -> None:
        super().__init__()
        self.model, self.source, self.spread = model, source, spread

    def forward(self, x: Tensor) -> Tensor:
        noise = {
            "torch": lambda: torch.randn(x.shape),
            "numpy": lambda: torch.from_numpy(np.random.standard_normal(x.shape)).float(),
            "python": lambda: torch.tensor([random.gauss(0, 1) for _ in range(x.numel())]).view(x.shape),
        }[self.source]()
        return self.model(x + self.spread * noise)


class Coin(nn.Module):
    """Two classes by the first pixel, the other way round in three answers of ten."""

    def forward(self, x: Tensor) -> Tensor:
        side = torch.where(torch.rand(len(x)) < 0.3, -1.0, 1.0) * (x.flatten(1)[:, 0] - 0.5)
        return torch.stack([side, -side], 1)


@pytest.mark.parametrize("source", ["torch", "numpy", "python"])
def test_a_randomised_model_is_broken_alike_for_any_batch_size(source):
    made = problem("cnn", 1, 8, 8, count=10)
    whole, alone = (
        outcomes(Classifier(Noisy(made.model, source), eot=3, draws=8), PGD(0.05, steps=3), jobs_of(made), slots=slots)
        for slots in (10, 3)
    )

    assert all(same(*pair) for pair in zip(whole, alone, strict=True))


def test_an_image_of_a_randomised_model_does_not_feel_who_came_before_it():
    made = problem("cnn", 1, 8, 8, count=10)
    jobs = jobs_of(made)
    ahead, back = (
        outcomes(Classifier(Noisy(made.model), eot=3, draws=8), PGD(0.05, steps=3), order, slots=4)
        for order in (jobs, jobs[::-1])
    )

    assert all(same(*pair) for pair in zip(ahead, back, strict=True))


def test_a_model_is_randomised_where_two_answers_differ_and_only_there():
    made = problem("cnn", 1, 8, 8, count=6)
    found = []
    for model in (made.model, Noisy(made.model), Noisy(made.model, spread=0.0)):
        with Classifier(model).session(made.x) as session:
            found.append(isinstance(session.oracle, draws.Randomized))

    assert found == [False, True, False]


def test_the_gradient_of_a_randomised_model_is_the_mean_over_its_draws():
    x = torch.full((1, 1, 2, 2), 0.75)
    classifier = Classifier(Coin(), eot=4000)
    method = FGSM(0.1, loss="margin")
    with classifier.session(x) as session:
        zero = torch.zeros(1, dtype=torch.int64)
        seen = session.query(method, method.init(Trials(x, zero, zero - 1, zero - 1, zero)))

    # The margin's slope is -2 in seven draws of ten and +2 in three: -0.8, give or take 4 * sqrt(0.21 / 4000).
    assert abs(seen.grad[0, 0, 0, 0].item() + 0.8) < 4 * 0.029


def test_a_verdict_is_what_most_draws_say():
    x = torch.cat([torch.full((40, 1, 2, 2), 0.75), torch.full((40, 1, 2, 2), 0.25)])
    classifier = Classifier(Coin(), draws=64)
    with classifier.session(x) as session:
        labels = session.judge(x).argmax(1)

    # A single draw would get 24 of the eighty wrong.
    assert labels.tolist() == [0] * 40 + [1] * 40


def test_votes_come_first_and_probability_breaks_ties():
    logits = torch.tensor([[0.0, 9.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])

    assert draws.votes_of(logits).argmax() == 0
    assert draws.votes_of(logits[:2]).argmax() == 1


def test_the_passes_of_a_randomised_model_count_every_draw():
    made = problem("cnn", 1, 8, 8, count=4)
    classifier = Classifier(Noisy(made.model, spread=0.01), eot=5, draws=7)
    ended = outcomes(classifier, PGD(1e-6, steps=3), jobs_of(made), slots=4)

    assert [(each.forwards, each.backwards) for each in ended] == [(3 * 5 + 7, 3 * 5)] * 4


def test_all_global_generators_are_left_as_they_were():
    made = problem("cnn", 1, 8, 8, count=4)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    outcomes(Classifier(Noisy(made.model), eot=2, draws=2), PGD(0.05, steps=2), jobs_of(made), slots=4)

    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())


def test_a_query_attack_on_a_randomised_model_stays_with_queries():
    made = problem("cnn", 1, 8, 8, count=4)
    ended = outcomes(Classifier(Noisy(made.model), eot=2, draws=2), Square(0.05, queries=3), jobs_of(made), slots=4)

    assert [each.backwards for each in ended] == [0] * 4


def test_averaging_a_model_that_is_not_randomised_is_said_to_be_of_no_use():
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.warns(UserWarning, match="nothing to average"):
        robustkit.attack(Classifier(made.model, eot=10), made.x, made.y, FGSM(0.01))


def test_no_draws_are_refused():
    with pytest.raises(UserError, match="at least 1"):
        Classifier(Coin(), eot=0)


def test_a_found_randomised_model_is_announced_with_its_numbers():
    x = images(8, 1, 8, 8)
    with pytest.warns(UserWarning, match="mean of 20 draws per query.* plurality of 64"):
        robustkit.attack(Coin(), x, torch.zeros(8, dtype=torch.int64), FGSM(0.01))
