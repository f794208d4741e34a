import pytest
import torch
from robustkit.attacks import FGSM, PGD, Square
from torch import Tensor, nn

import robustkit
from robustkit.classifier import randomized as draws
from robustkit.classifier.classifier import Classifier
from robustkit.errors import UserError
from robustkit.primitives.protocol import Trials
from tests.networks import Noisy
from tests.problems import images, jobs_of, outcomes, problem, same


class Coin(nn.Module):
    """Two classes by the first pixel, exchanged in three draws of ten."""

    def forward(self, x: Tensor) -> Tensor:
        side = torch.where(torch.rand(len(x)) < 0.3, -1.0, 1.0) * (x.flatten(1)[:, 0] - 0.5)
        return torch.stack([side, -side], 1)


@pytest.mark.parametrize("source", ["torch", "numpy", "python"])
def test_a_randomized_model_is_broken_alike_for_any_batch_size(source):
    made = problem("cnn", 1, 8, 8, count=10)
    whole, alone = (
        outcomes(Classifier(Noisy(made.model, source), eot=3, draws=8), PGD(0.05, steps=3), jobs_of(made), slots=slots)
        for slots in (10, 3)
    )

    assert all(same(*pair) for pair in zip(whole, alone, strict=True))


def test_a_randomized_result_does_not_depend_on_the_order_of_the_images():
    made = problem("cnn", 1, 8, 8, count=10)
    jobs = jobs_of(made)
    ahead, back = (
        outcomes(Classifier(Noisy(made.model), eot=3, draws=8), PGD(0.05, steps=3), order, slots=4)
        for order in (jobs, jobs[::-1])
    )

    assert all(same(*pair) for pair in zip(ahead, back, strict=True))


def test_a_model_is_randomized_where_two_answers_differ_and_only_there():
    made = problem("cnn", 1, 8, 8, count=6)
    found = []
    for model in (made.model, Noisy(made.model), Noisy(made.model, spread=0.0)):
        with Classifier(model).session(made.x) as session:
            found.append(isinstance(session.oracle, draws.Randomized))

    assert found == [False, True, False]


def test_the_gradient_of_a_randomized_model_is_the_mean_over_its_draws():
    x = torch.full((1, 1, 2, 2), 0.75)
    classifier = Classifier(Coin(), eot=4000)
    method = FGSM(0.1, loss="margin")
    with classifier.session(x) as session:
        zero = torch.zeros(1, dtype=torch.int64)
        seen = session.query(method, method.init(Trials(x, zero, zero - 1, zero - 1, zero, zero)))

    # The margin's slope is -2 in seven draws of ten and +2 in three: -0.8, give or take 4 * sqrt(0.21 / 4000).
    assert abs(seen.grad[0, 0, 0, 0].item() + 0.8) < 4 * 0.029


def test_a_verdict_is_the_class_of_most_draws():
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


def test_the_passes_of_a_randomized_model_count_every_draw():
    made = problem("cnn", 1, 8, 8, count=4)
    classifier = Classifier(Noisy(made.model, spread=0.01), eot=5, draws=7)
    ended = outcomes(classifier, PGD(1e-6, steps=3), jobs_of(made), slots=4)

    assert [(each.forwards, each.backwards) for each in ended] == [(3 * 5 + 7, 3 * 5)] * 4


def test_a_query_attack_on_a_randomized_model_uses_no_gradient():
    made = problem("cnn", 1, 8, 8, count=4)
    ended = outcomes(Classifier(Noisy(made.model), eot=2, draws=2), Square(0.05, queries=3), jobs_of(made), slots=4)

    assert [each.backwards for each in ended] == [0] * 4


def test_averaging_a_model_that_is_not_randomized_is_a_warning():
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.warns(UserWarning, match="nothing to average"):
        robustkit.attack(Classifier(made.model, eot=10), made.x, made.y, FGSM(0.01))


def test_zero_draws_are_refused():
    with pytest.raises(UserError, match="at least 1"):
        Classifier(Coin(), eot=0)


def test_a_randomized_model_is_a_warning_with_the_numbers_of_draws():
    x = images(8, 1, 8, 8)
    with pytest.warns(UserWarning, match="mean of 20 draws per query.* plurality of 64"):
        robustkit.attack(Coin(), x, torch.zeros(8, dtype=torch.int64), FGSM(0.01))
