import math

import pytest
import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import checked_images, checked_labels, checked_model
from robustkit.errors import UserError
from tests.networks import Changed
from tests.problems import images, problem


def warnings_of(model: nn.Module | Classifier, x: Tensor) -> list[str]:
    classifier = model if isinstance(model, Classifier) else Classifier(model)
    with classifier.session(x) as session:
        return checked_model(classifier, session, x)


def changed(change, count: int = 12) -> list[str]:
    made = problem("mlp", 1, 8, 8, count=count)
    return warnings_of(Changed(made.model, change), made.x)


def test_pixels_3e8_below_zero_are_clamped():
    # foolbox raises an empty AssertionError for them.
    x = torch.tensor([[-3e-8, 0.5, 1 + 1e-7]])

    assert checked_images(x, (0, 1)).tolist() == [[0, 0.5, 1]]
    assert x[0, 0] < 0


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.rand(0, 3), "no images"),
        (torch.zeros(2, 3, dtype=torch.uint8), "divide by 255"),
        (torch.tensor([[0.1], [math.nan]]), "Image 1 holds NaN"),
        (torch.tensor([[math.inf], [0.1]]), "Image 0 holds NaN or infinite"),
        (torch.tensor([[0.0, 200.0]]), r"must lie in \[0, 1\], but these lie in \[0, 200\]"),
        (torch.tensor([[-0.5, 0.5]]), "normalisation inside the model"),
    ],
)
def test_invalid_images_are_refused_with_the_fix(x, sentence):
    with pytest.raises(UserError, match=sentence):
        checked_images(x, (0, 1))


def test_the_tolerance_grows_with_the_range():
    assert checked_images(torch.tensor([[255.0001]]), (0, 255)).item() == 255
    with pytest.raises(UserError, match="255"):
        checked_images(torch.tensor([[255.01]]), (0, 255))


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (torch.tensor([0, 7]), "Label 7 of image 1 is not a class of the model, which has 0 to 3"),
        (torch.tensor([-1, 0]), "Label -1 of image 0"),
        (torch.tensor([0.0, 1.0]), "whole numbers"),
        (torch.tensor([True, False]), "whole numbers"),
        (torch.tensor([0]), "2 whole numbers, one per image"),
        (torch.tensor([[0], [1]]), "one per image"),
    ],
)
def test_invalid_labels_are_refused_with_the_fix(y, sentence):
    with pytest.raises(UserError, match=sentence):
        checked_labels(y, 2, 4)


def test_labels_of_any_integer_type_are_accepted():
    assert checked_labels(torch.tensor([0, 3], dtype=torch.uint8), 2, 4).dtype == torch.int64


@pytest.mark.parametrize("count", [1, 5, 40])
def test_a_sound_model_has_no_warnings(count):
    made = problem("cnn", 1, 8, 8, count=count)

    assert warnings_of(made.model, made.x) == []


def test_a_model_that_returns_nan_is_an_error():
    with pytest.raises(UserError, match="NaN or infinite logits"):
        changed(lambda logits: logits / 0)


def test_a_randomised_model_is_a_warning():
    assert "randomized" in changed(lambda logits: logits + torch.rand_like(logits))[0]


@pytest.mark.parametrize("count", [1, 12])
def test_a_model_with_statistics_of_the_batch_is_an_error(count):
    # TRADES, issue 3: the logits of such a network depend on the whole batch.
    with pytest.raises(UserError, match="depends on the other images"):
        changed(lambda logits: logits - logits.mean(0), count)


def test_a_model_that_mixes_up_neighbours_is_an_error():
    with pytest.raises(UserError, match="depends on the other images"):
        changed(lambda logits: logits.roll(1, 0))


@pytest.mark.parametrize("power", [1, 50])
def test_probabilities_instead_of_logits_are_a_warning(power):
    assert "probabilities" in changed(lambda logits: (logits * power).softmax(1))[0]


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("power", [1, 60])  # in fp32 some are then 0 or 1
def test_one_probability_per_image_is_refused(power, probabilities):
    # Read as a logit, it made every image class 1; with the remedy that the warning named, too.
    made = problem("mlp", 1, 8, 8, classes=2)
    model = Changed(made.model, lambda logits: (power * logits[:, :1]).sigmoid())

    with pytest.raises(UserError, match=r"one probability for each image; let it return the logit .* torch\.cat"):
        warnings_of(Classifier(model, probabilities=probabilities), made.x)


@pytest.mark.parametrize("seed", range(5))
def test_one_logit_that_lies_between_0_and_1_by_chance_is_no_probability(seed):
    torch.manual_seed(seed)
    linear = nn.Linear(64, 1)
    linear.bias.data.fill_(0.5)
    linear.weight.data.mul_(0.5)
    model, x = nn.Sequential(nn.Flatten(), linear), torch.rand(12, 1, 8, 8)
    with torch.no_grad():
        assert ((model(x) > 0) & (model(x) < 1)).all()

    assert warnings_of(model, x) == []
    for changed_to in (torch.sigmoid, lambda logits: (9 * logits).sigmoid(), lambda logits: logits.sigmoid().detach()):
        with pytest.raises(UserError, match="one probability"):
            warnings_of(Changed(model, changed_to), x)


def test_small_logits_are_no_probabilities():
    assert changed(lambda logits: logits * 1e-3) == []


def test_a_model_whose_logits_are_all_equal_passes():
    assert changed(lambda logits: logits * 0) == []


def test_images_are_not_changed_by_the_checks():
    made = problem("mlp", 1, 8, 8)
    before = made.x.clone()
    warnings_of(made.model, made.x)

    assert torch.equal(made.x, before)
    assert torch.equal(images(12, 1, 8, 8), before)


def test_logits_that_are_said_to_be_probabilities_are_refused():
    made = problem("mlp", 1, 8, 8)
    classifier = Classifier(made.model, probabilities=True)

    with classifier.session(made.x) as session, pytest.raises(UserError, match=r"outside of \[0, 1\].*leave out"):
        checked_model(classifier, session, made.x)
