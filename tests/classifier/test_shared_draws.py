from dataclasses import replace

import pytest
import torch
from robustkit.attacks import FGSM
from torch import nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.oracle import Look
from robustkit.classifier.shared_draws import rows_share_draws
from tests.networks import Changed, Coin, Noisy, OneOfThree
from tests.problems import images, problem, trials

LINEAR = nn.Linear(4, 3)
SHARED = {
    "a member of an ensemble": OneOfThree(LINEAR),
    "a member that is seldom drawn": OneOfThree(LINEAR, 0.05),
    "one shift of all images": Changed(LINEAR, before=lambda x: x + 0.1 * torch.randn(4)),
    "shared and own noise alike": Changed(LINEAR, before=lambda x: x + torch.randn(4) + torch.randn_like(x)),
}
OWN = {
    "a coin for each row": Changed(Coin(), before=lambda x: x.flatten(1)),
    "noise": Noisy(LINEAR),
    "dropout": Changed(LINEAR, before=lambda x: nn.functional.dropout(x, 0.5)),
    "no noise": LINEAR,
}


@pytest.mark.parametrize("name", [*SHARED, *OWN])
def test_a_model_shares_draws_where_rows_of_one_forward_are_alike(name):
    x = images(2, 4)
    with torch.no_grad():
        assert rows_share_draws({**SHARED, **OWN}[name], x, 0) == (name in SHARED)


def test_a_member_that_is_drawn_for_the_whole_batch_does_not_decide_alone():
    made = problem("mlp", 1, 8, 8, count=12)
    with Classifier(made.model).session(made.x) as session:
        expected = session.judge(made.x).argmax(1).tolist()
    with Classifier(OneOfThree(made.model)).session(made.x) as session:
        labels = session.oracle.verdicts(made.x, [Look(number) for number in range(12)]).labels.tolist()

    # In copies of one forward, a third of the verdicts would be those of the member that is mostly wrong.
    assert labels == expected


def test_a_member_that_is_drawn_too_seldom_to_be_noticed_does_not_decide():
    made = problem("mlp", 1, 8, 8, count=12)
    with Classifier(made.model).session(made.x) as session:
        expected = session.judge(made.x).argmax(1)
    with Classifier(OneOfThree(made.model, 0.1)).session(made.x) as session:
        unaware = replace(session.oracle, together=64)
        labels = unaware.verdicts(made.x.repeat(5, 1, 1, 1), [Look(number, 1) for number in range(60)]).labels

    assert labels.tolist() == expected.repeat(5).tolist()


def test_an_attack_sees_the_mean_over_members_that_are_drawn_for_the_whole_batch():
    made = problem("mlp", 1, 8, 8, count=2)
    method = FGSM(0.1, loss="margin")
    state = method.init(trials(made.x, made.y))
    with Classifier(made.model).session(made.x) as session:
        plain = session.query(method, state).logits
    with Classifier(OneOfThree(made.model), eot=300).session(made.x) as session:
        mean = session.query(method, state).logits

    # A third on average, give or take four standard deviations of the mean of 300 signs.
    assert ((mean / plain - 1 / 3).abs() < 4 * 0.0545).all()
