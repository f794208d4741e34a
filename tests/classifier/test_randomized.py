import math
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from robustkit.attacks import FGSM, PGD, Square
from torch import Tensor

import robustkit
from robustkit.classifier import randomized as draws_of
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.oracle import Look
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.primitives.protocol import Trials
from robustkit.statistics.randomized_smoothing import ABSTAINS
from tests.networks import Coin, Noisy
from tests.problems import digits, images, jobs_of, outcomes, problem, same


@pytest.mark.parametrize("source", ["torch", "numpy", "python"])
def test_a_randomized_model_is_broken_alike_for_any_batch_size(source):
    made = problem("cnn", 1, 8, 8, count=6)
    whole, alone = (
        outcomes(Classifier(Noisy(made.model, source), eot=3, draws=64), PGD(0.05, steps=2), jobs_of(made), slots=slots)
        for slots in (6, 2)
    )

    assert all(same(*pair) for pair in zip(whole, alone, strict=True))


def test_a_randomized_result_does_not_depend_on_the_order_of_the_images():
    made = problem("cnn", 1, 8, 8, count=6)
    jobs = jobs_of(made)
    ahead, back = (
        outcomes(Classifier(Noisy(made.model), eot=3, draws=64), PGD(0.05, steps=2), order, slots=4)
        for order in (jobs, jobs[::-1])
    )

    assert all(same(*pair) for pair in zip(ahead, back, strict=True))


def test_a_model_is_randomized_where_two_answers_differ_and_only_there():
    made = problem("cnn", 1, 8, 8, count=6)
    found = []
    for model in (made.model, Noisy(made.model), Noisy(made.model, spread=0.0)):
        with Classifier(model).session(made.x) as session:
            found.append(isinstance(session.oracle, draws_of.Randomized))

    assert found == [False, True, False]


def test_the_gradient_of_a_randomized_model_is_the_mean_over_its_draws():
    x = torch.full((1, 1, 2, 2), 0.75)
    classifier = Classifier(Coin(0.7), eot=4000)
    method = FGSM(0.1, loss="margin")
    with classifier.session(x) as session:
        zero = torch.zeros(1, dtype=torch.int64)
        seen = session.query(method, method.init(Trials(x, zero, zero - 1, zero - 1, zero, zero)))

    # The margin's slope is -2 in seven draws of ten and +2 in three: -0.8, give or take 4 * sqrt(0.21 / 4000).
    assert abs(seen.grad[0, 0, 0, 0].item() + 0.8) < 4 * 0.029


pytestmark = pytest.mark.filterwarnings("ignore:.* is randomized")


def sides(count: int) -> Tensor:
    """Images of a coin's class 0, then as many of class 1."""
    return torch.cat([torch.full((count, 1, 2, 2), 0.75), torch.full((count, 1, 2, 2), 0.25)])


def looks(count: int, number: int = 0, **more: Any) -> list[Look]:
    return [Look(key, number, **more) for key in range(count)]


def test_a_verdict_is_the_class_of_most_draws():
    x = sides(20)
    with Classifier(Coin(0.7)).session(x) as session:
        verdicts = session.oracle.verdicts(x, looks(40))

    # A single draw would get twelve of the forty wrong, the plurality of 64 none and one in a thousand.
    assert verdicts.labels.tolist() == [0] * 20 + [1] * 20
    assert max(verdicts.forwards) <= 512


def test_where_both_classes_are_as_likely_nothing_is_broken():
    x = sides(12)
    with Classifier(Coin(0.5)).session(x) as session:
        labels = session.oracle.verdicts(x, looks(24, number=1)).labels

    # The same draws for all would have given all images one verdict, and bare votes half of them the wrong one.
    assert labels.tolist() == [ABSTAINS] * 24


def test_images_do_not_share_their_draws():
    x = sides(15)
    with Classifier(Coin(0.5)).session(x) as session:
        votes = session.oracle.verdicts(x, looks(30)).scores[:, 0].int()
        again = session.oracle.verdicts(x[:1], looks(30)[:1]).scores[:, 0].int()

    assert len(set(votes.tolist())) > 10
    assert again == votes[0]


def test_a_point_that_does_not_end_its_trial_is_given_up_early():
    x = sides(6)
    with Classifier(Coin(0.5)).session(x) as session:
        early, late = (
            sum(session.oracle.verdicts(x, looks(12, number=1, final=final)).forwards) for final in (False, True)
        )

    assert late == 12 * 1024
    assert early < 12 * 70


def test_a_label_whose_votes_are_close_is_no_label():
    assert draws_of._leading([0] * 12 + [1] * 8) == ABSTAINS
    assert draws_of._leading([1] * 13 + [0] * 7) == 1
    assert draws_of._leading([2]) == 2


def test_with_the_attack_off_nothing_is_broken():
    x, y = sides(12), torch.tensor([0] * 12 + [1] * 12)
    result = robustkit.attack(Classifier(Coin(0.62), eot=2), x, y, PGD(0.0, steps=2, restarts=2))

    # Nearly all images are right by majority, and none may be broken with a chance above 0.001.
    assert result.clean_correct.sum() > 21
    assert result.success.sum() == 0


def test_broken_points_stay_broken_under_a_thousand_fresh_draws():
    made = digits()
    x, y = made.x[:30], made.y[:30]
    model = Noisy(made.model, spread=0.25)
    result = robustkit.attack(Classifier(model, eot=5), x, y, PGD(0.1, steps=5))
    broken = result.success.nonzero().flatten().tolist()
    torch.manual_seed(100)
    votes = [model(result.x_adv[row].expand(1000, 1, 8, 8)).argmax(1).bincount().argmax() for row in broken]

    assert len(broken) > 10
    assert all(int(vote) != int(y[row]) for vote, row in zip(votes, broken, strict=True))


def test_the_accuracy_of_one_draw_is_that_of_fresh_forwards():
    made = digits()
    x, y = made.x[:50], made.y[:50]
    model = Noisy(made.model, spread=0.25)
    result = robustkit.attack(Classifier(model, eot=2), x, y, PGD(0.05, steps=2))
    torch.manual_seed(1)
    fresh = torch.stack([model(result.x_adv).argmax(1) == y for _ in range(100)]).double().mean().item()

    # Two means over the same 50 points: 16 and 100 draws each, whose variance is at most a quarter.
    assert abs(result.single_draw_accuracy - fresh) < 4 * math.sqrt(0.25 / 800 + 0.25 / 5000)
    assert result.robust_accuracy != result.single_draw_accuracy


def test_one_draw_of_a_plain_model_is_its_prediction():
    made = problem("cnn", 1, 8, 8, count=10)
    result = robustkit.attack(made.model, made.x, made.y, FGSM(0.05))

    assert result.single_draw_accuracy == result.robust_accuracy


def test_votes_come_first_and_probability_breaks_ties():
    logits = torch.tensor([[0.0, 9.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])

    assert draws_of.votes_of(logits).argmax() == 0
    assert draws_of.votes_of(logits[:2]).argmax() == 1


@pytest.mark.parametrize("transfer", [False, True])
def test_the_passes_of_a_randomized_model_count_every_draw(transfer):
    made = problem("cnn", 1, 8, 8, count=6)
    jobs, attack = jobs_of(made), PGD(0.05, steps=3, restarts=2)
    with ExitStack() as stack:
        judge, other = (stack.enter_context(Classifier(Noisy(made.model), eot=5).session(made.x)) for _ in range(2))
        before = judge.passes.forwards, judge.passes.backwards, other.passes.forwards, other.passes.backwards
        ended = list(run(judge, attack, jobs, slots=4, surrogate=other if transfer else None))
        after = judge.passes.forwards, judge.passes.backwards, other.passes.forwards, other.passes.backwards

    own, own_backwards, queried, queried_backwards = (late - early for late, early in zip(after, before, strict=True))
    # A query has as many backwards as forwards, in idle slots too; what is left are the draws of the verdicts.
    judged = own + queried - own_backwards - queried_backwards
    assert sum(each.forwards - each.backwards for each in ended) == judged
    assert (own == judged) == transfer


def test_a_clear_point_costs_32_draws_and_as_many_for_the_accuracy_of_one():
    made = problem("cnn", 1, 8, 8, count=4)
    ended = outcomes(Classifier(Noisy(made.model, spread=0.001), eot=5), PGD(1e-6, steps=3), jobs_of(made), slots=4)

    assert [(each.forwards, each.backwards) for each in ended] == [(3 * 5 + 32 + 32, 3 * 5)] * 4


def test_a_query_attack_on_a_randomized_model_uses_no_gradient():
    made = problem("cnn", 1, 8, 8, count=4)
    ended = outcomes(Classifier(Noisy(made.model), eot=2), Square(0.05, queries=3), jobs_of(made), slots=4)

    assert [each.backwards for each in ended] == [0] * 4


def test_averaging_a_model_that_is_not_randomized_is_a_warning():
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.warns(UserWarning, match="nothing to average"):
        robustkit.attack(Classifier(made.model, eot=10), made.x, made.y, FGSM(0.01))


def test_zero_draws_are_refused():
    with pytest.raises(UserError, match="at least 1"):
        Classifier(Coin(0.7), eot=0)
    with pytest.raises(UserError, match="too few to prove a verdict; allow at least 64"):
        Classifier(Coin(0.7), draws=63)


def test_a_randomized_model_is_a_warning_with_the_numbers_of_draws():
    x = images(8, 1, 8, 8)
    with pytest.warns(UserWarning, match="mean of 20 draws per query.* up to 1,024 fresh draws"):
        robustkit.attack(Coin(0.7), x, torch.zeros(8, dtype=torch.int64), FGSM(0.01))
