import warnings

import pytest
import torch
from robustkit.attacks import FGSM
from torch import nn

import robustkit
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.rows_apart import check_rows_apart
from robustkit.errors import UserError
from tests.networks import BatchStatistics, Changed, Coin, Noisy, OneOfThree
from tests.problems import problem


def check(model: nn.Module) -> None:
    made = problem("cnn", 1, 8, 8, count=16)
    with Classifier(model).session(made.x) as session:
        check_rows_apart(session, made.x)


@pytest.mark.parametrize("count", [1, 12])
def test_batch_statistics_behind_dropout_are_refused(count):
    made = problem("mlp", 1, 8, 8, count=count)
    with pytest.raises(UserError, match=r"depends on the other images of its batch.*eval mode") as refused:
        robustkit.attack(BatchStatistics(made.model), made.x, made.y, FGSM(0.01))

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "couple",
    [lambda logits: logits.roll(1, 0), lambda logits: logits - logits.mean(0), lambda logits: logits.sort(0).values],
    ids=["a neighbour's answer", "the batch's mean", "sorted"],
)
def test_rows_that_depend_on_their_batch_are_refused_also_where_they_are_noisy(couple):
    made = problem("cnn", 1, 8, 8)
    with pytest.raises(UserError, match="draws random numbers, and its answer"):
        check(Noisy(Changed(made.model, couple), spread=0.05))


def test_randomized_models_that_answer_each_row_alone_pass():
    made = problem("cnn", 1, 8, 8)
    for model in (Noisy(made.model), Coin(), OneOfThree(made.model), nn.Sequential(made.model, Steady())):
        check(model)


class Steady(nn.Module):
    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(logits, 0.2, training=True)


def test_numbers_that_other_rows_use_up_are_no_dependence():
    made = problem("cnn", 1, 8, 8)
    # torch draws as many numbers for a Poisson variable as its mean calls for, so a later row's noise moves.
    check(Changed(made.model, before=lambda x: torch.poisson(20 * x.flip(0)).flip(0) / 20))


def test_a_randomized_model_that_returns_nan_is_an_error():
    made = problem("mlp", 1, 8, 8, count=4)
    with pytest.raises(UserError, match="NaN or infinite logits"), warnings.catch_warnings():
        robustkit.attack(Noisy(Changed(made.model, lambda logits: logits / 0)), made.x, made.y, FGSM(0.01))
