"""A Python function as a classifier: the verdicts of the network that it calls, and no more access than it gives."""

import copy

import numpy as np
import pytest
import torch

import robustkit
from robustkit.errors import UserError
from tests.small import data, evaluated, linear


def logits_of(images):
    return linear()(torch.from_numpy(images)).detach().numpy()


def probabilities_of(images):
    return torch.from_numpy(logits_of(images)).softmax(1)


def labels_of(images):
    return logits_of(images).argmax(1)


LABELS = robustkit.BlackBox(labels_of, returns="labels", num_classes=10)


def test_a_function_has_the_verdicts_of_the_network_that_it_calls():
    more = {"dataset": data(10), "attacks": ["square:queries=40"], "eps": "0.25"}
    more |= {"corruptions": "contrast", "severities": 3}

    own, function = (
        evaluated([model], None, names="model", **more) for model in (linear(), robustkit.BlackBox(logits_of))
    )

    assert (own.samples["verdict"] == "broken").any()
    assert function.samples.equals(own.samples)
    assert function.corruptions.equals(own.corruptions)


def test_labels_are_enough_for_decision_attacks():
    x, y = data(6)

    own, labels = (robustkit.attack(model, x, y, "rays:queries=60", eps="0.2") for model in (linear(), LABELS))

    assert own.success.any()
    assert torch.equal(labels.x_adv, own.x_adv)


def test_probabilities_become_logarithms():
    x, _ = data(4)
    model = robustkit.BlackBox(probabilities_of, returns="probabilities")

    torch.testing.assert_close(model(x), linear()(x).log_softmax(1).detach())


def test_transfer_needs_neither_gradients_nor_scores():
    x, y = data(8)

    found = robustkit.attack(LABELS, x, y, "fgsm", eps="0.1", surrogate=linear())

    assert found.success.any()


@pytest.mark.parametrize(
    ("model", "attack", "way_out"),
    [
        (robustkit.BlackBox(logits_of), "pgd", "--surrogate"),
        (LABELS, "pgd", "--surrogate"),
        (LABELS, "square", "hopskipjump"),
    ],
)
def test_what_a_model_does_not_give_is_refused_with_the_way_out(model, attack, way_out):
    x, y = data(2)
    for refused in (
        lambda: robustkit.attack(model, x, y, attack, eps="0.1"),
        lambda: evaluated([model], None, dataset=(x, y), attacks=[attack], eps="0.1"),
    ):
        with pytest.raises(UserError, match=way_out):
            refused()


@pytest.mark.parametrize(
    ("answer", "returns"),
    [
        (lambda images: np.zeros((len(images) + 1, 10)), "logits"),
        (lambda images: np.zeros(len(images)), "logits"),
        (lambda images: np.zeros((len(images), 7)), "logits"),
        (lambda images: [[0.0], [1.0, 2.0]], "logits"),
        (lambda images: ["cat"] * len(images), "labels"),
        (lambda images: np.full(len(images), 10), "labels"),
        (lambda images: np.full((len(images), 10), 1.5), "probabilities"),
    ],
)
def test_answers_of_another_form_are_one_line(answer, returns):
    model = robustkit.BlackBox(answer, returns=returns, num_classes=10)

    with pytest.raises(UserError) as caught:
        model(data(2)[0])

    assert "\n" not in str(caught.value)


def test_scores_in_bfloat16_are_scores():
    """A command said of such a function that it does not take the images."""
    x, _ = data(3)
    scores = linear()(x).detach().bfloat16()

    answers = robustkit.BlackBox(lambda images: scores, num_classes=10)(x)

    assert torch.equal(answers, scores.float())


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, lambda scores: scores.to("meta")], ids=["sparse", "meta"])
def test_a_tensor_that_numpy_cannot_read_is_refused_by_its_kind(change):
    model = robustkit.BlackBox(lambda images: change(torch.ones(len(images), 10)), num_classes=10)

    with pytest.raises(UserError, match=r"sparse_coo|meta"):
        model(data(2)[0])


def test_labels_need_a_number_of_classes():
    with pytest.raises(UserError, match="num_classes"):
        robustkit.BlackBox(labels_of, returns="labels")


def test_copies_share_what_cannot_be_copied():
    handle = open  # a builtin, as a stand-in for sessions and sockets

    assert copy.deepcopy(robustkit.BlackBox(handle))._function.value is handle


def test_no_check_blames_a_black_box_for_having_no_gradients():
    model = robustkit.BlackBox(logits_of)
    run = evaluated([model], None, dataset=data(3), attacks=["square:queries=9"], eps="0.02", checks="standard")
    found = {check.name: check.status for check in run.checks}

    assert found["gradient_direction"] == "not_applicable"
    assert "failed" not in found.values()


def test_a_function_that_changes_its_number_of_classes_is_refused():
    widths = iter([3, 4])
    box = robustkit.BlackBox(lambda images: images.reshape(len(images), -1)[:, : next(widths)])
    box(torch.zeros(2, 1, 8, 8))

    with pytest.raises(UserError, match="4 scores for an image, but it has 3 classes"):
        box(torch.zeros(2, 1, 8, 8))
