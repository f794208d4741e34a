"""A class that is switched off by a huge negative logit says nothing of the size of the others."""

import pytest
import torch
from robustkit.attacks import FGSM, PGD

import robustkit
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.logit_sizes import sizes, units
from robustkit.errors import UserError
from robustkit.evaluation.rejudging import predictions
from tests.networks import BatchStatistics, Changed, Private, switched_off
from tests.problems import problem

OFF = (1e5, 1e9, 3e38)


def test_the_size_of_ordinary_logits_is_their_range():
    logits = torch.randn(16, 10, generator=torch.Generator().manual_seed(0))

    assert (sizes(logits) == logits.max() - logits.min()).all()


@pytest.mark.parametrize("value", OFF)
def test_the_size_of_other_logits_does_not_grow_with_a_class_that_is_switched_off(value):
    logits = torch.randn(16, 10, generator=torch.Generator().manual_seed(0))
    found = sizes(torch.cat([logits, torch.full((16, 1), -value)], 1))

    assert found[:, :-1].max() <= 10 * logits.abs().max()
    assert (found[:, -1] >= value).all()


@pytest.mark.parametrize(("kind", "unit"), [(torch.bfloat16, 2**-7), (torch.float16, 2**-10), (torch.float32, 0)])
def test_the_unit_of_logits_is_that_of_the_type_they_were_rounded_to(kind, unit):
    logits = torch.randn(4, 10, generator=torch.Generator().manual_seed(0)).to(kind).float()

    assert units(logits) == [unit] * 4


def test_equal_logits_have_a_size_above_zero():
    assert (sizes(torch.zeros(3, 4)) > 0).all()


@pytest.mark.parametrize("value", OFF)
def test_as_many_images_are_broken_as_without_the_class(value):
    """All of 60 images of a network for digits counted as robust, though 57 adversarial examples were at hand."""
    made = problem("mlp", 1, 8, 8, count=24)
    broken, plain = (
        robustkit.attack(switched_off(made.model, off), made.x, made.y, PGD(0.1, "Linf", steps=10)).success
        for off in (value, 1e2)
    )

    assert torch.equal(broken, plain)
    assert broken.sum() > 0


@pytest.mark.parametrize("value", OFF)
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda model: Changed(model, lambda logits: logits - logits.mean(0)), "depends on the other images"),
        (BatchStatistics, "depends on the other images"),
        (lambda model: Private(model, "a count of its calls", 1e-2), "changes from call to call"),
    ],
    ids=["batch", "batch behind dropout", "calls"],
)
def test_a_model_that_does_not_answer_each_image_alone_is_refused(model, said, value):
    made = problem("mlp", 1, 8, 8, count=12)
    with pytest.raises(UserError, match=said):
        robustkit.attack(switched_off(model(made.model), value), made.x, made.y, FGSM(0.01))


@pytest.mark.parametrize("value", OFF)
def test_predictions_that_were_changed_in_the_evidence_are_not_taken_for_rounding(value):
    """`verify --model` passed a folder in which 20 of 60 predictions had been edited."""
    made = problem("mlp", 1, 8, 8, count=8)
    model = switched_off(made.model, value)
    with Classifier(model).session(made.x) as session:
        right = session.oracle.judge(made.x).argmax(1).tolist()
        assert predictions(session, made.x, [(label + 1) % 3 for label in right]) == right
