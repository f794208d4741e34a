"""Failures of a training that are recognized from its recorded accuracies."""

import pytest
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.training.guards import collapsed, hopeless, masking_note, notes_before, overfitted
from robustkit.defenses.training.selection import ValidationScore

from tests.defenses.doubles import Watch
from tests.defenses.nets import SHORT, TRAIN, VAL, judge_as, net, same_weights

WEAK, ROBUST = ValidationScore(0.98, 0.01, 0.0), ValidationScore(0.9, 0.4, 0.4)
FALLING = [(0.9, 0.3), (0.8, 0.45), (0.9, 0.0), (0.8, 0.5)]  # overfitted in the second epoch


def first_overfitted(inner, worst):
    return next((epoch for epoch in range(len(worst)) if overfitted(inner[: epoch + 1], worst[: epoch + 1])), None)


@pytest.mark.parametrize(
    ("inner", "worst", "expected"),
    [
        # Accuracy under the inner attack on training images and under a strong one on validation images, by epoch.
        # As in Wong et al. 2020, figure 1: FGSM at 8/255, robust up to an epoch, then not at all within one.
        ([0.30, 0.38, 0.42, 0.45, 0.46, 0.85], [0.25, 0.33, 0.37, 0.40, 0.41, 0.01], 5),
        # Digits, plain FGSM at 0.3: robust accuracy reached 8.2 % and fell to 1 %.
        ([0.02, 0.10, 0.15, 0.18, 0.20, 0.27], [0.0, 0.02, 0.05, 0.08, 0.082, 0.01], 5),
        ([0.30, 0.40, 0.45, 0.47], [0.28, 0.36, 0.40, 0.41], None),  # no failure
        ([0.30, 0.45, 0.60, 0.75], [0.28, 0.40, 0.39, 0.36], None),  # robust overfitting, slow
        ([0.30, 0.45, 0.10, 0.10], [0.28, 0.40, 0.10, 0.10], None),  # collapse: robust against nothing
        ([0.95, 0.80, 0.60, 0.50], [0.05, 0.20, 0.33, 0.38], None),  # the radius grows
        ([0.05, 0.05, 0.06], [0.03, 0.02, 0.01], None),  # too little to fall from
        ([0.3], [0.3], None),
        ([], [], None),
    ],
)
def test_catastrophic_overfitting_is_recognized_in_its_epoch(inner, worst, expected):
    assert first_overfitted(inner, worst) == expected


@pytest.mark.parametrize(
    ("clean", "chance", "expected"),
    [
        (0.101, 0.10, True),
        (0.288, 0.10, False),  # little, but learned
        (0.5, 0.5, True),  # two classes
        (0.6, 0.5, False),
        (0.012, 0.01, True),  # a hundred classes
        (0.08, 0.01, False),  # eight times chance
    ],
)
def test_collapse_is_an_accuracy_near_chance(clean, chance, expected):
    assert collapsed(clean, chance) == expected


@pytest.mark.parametrize(
    ("clean", "expected"),
    [
        ([0.9, 0.1, 0.1, 0.1], True),
        ([0.1, 0.1, 0.9, 0.1, 0.1], False),
        ([0.1, 0.1], False),
        ([0.9, 0.1, 0.1], False),
        ([0.1, 0.1, 0.1, 0.1], False),  # it may still begin to learn
    ],
)
def test_a_training_is_hopeless_after_three_collapsed_epochs(clean, expected):
    assert hopeless(clean, 0.1) == expected


def test_masking_is_a_large_gap():
    assert masking_note(ValidationScore(0.9, 0.40, 0.36)) is None
    assert "30.9%" in masking_note(ValidationScore(0.9, 0.434, 0.309))


@pytest.mark.parametrize(
    ("changes", "start", "prefix", "words"),
    [
        ({}, WEAK, False, None), ({}, WEAK, True, "frozen layers"), ({}, ROBUST, True, None),
        ({"bn": "frozen"}, WEAK, False, "lr=0.0125 and clip=1"), ({"bn": "frozen", "lr": 0.01}, WEAK, False, None),
        ({"bn": "frozen"}, ROBUST, False, None),
        ({"label_smoothing": 0.3}, WEAK, False, "hide"),
        ({"bn": "frozen-prefix"}, WEAK, False, "same as bn=batch"),
        ({"label_smoothing": 0.1}, WEAK, False, None),
    ],
)  # fmt: skip
def test_risky_choices_are_named_before_the_training(changes, start, prefix, words):
    notes = notes_before(Recipe(**changes), start, prefix=prefix, has_norms=True, uses_attack=True)

    assert notes == [] if words is None else words in " ".join(notes)


def tuned(monkeypatch, scores, recipe, **more):
    """The result of a training with these accuracies, and its network."""
    judge_as(monkeypatch, scores)
    network = net()
    return finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe.but(lr=1e-4), **more), network


def test_a_training_that_overfits_goes_back_and_continues_with_a_stronger_attack(monkeypatch):
    watch = Watch()
    result, _ = tuned(monkeypatch, FALLING, SHORT.but(epochs=3, attack="rs-fgsm"), watch=watch)

    assert list(result.history["rolled_back"]) == [False, True, False]
    assert (result.best_epoch, result.status) == (3, "finished")
    assert any("went back to epoch 1 and continued with pgd:steps=2" in text for text in watch.messages)
    assert any("Catastrophic overfitting in epoch 2" in note for note in result.notes)


def test_without_the_guard_it_does_not_go_back(monkeypatch):
    result, _ = tuned(monkeypatch, FALLING, SHORT.but(epochs=3, attack="rs-fgsm", guard=False))

    assert not result.history["rolled_back"].any()


def test_forgetting_at_a_small_radius_is_no_overfitting(monkeypatch):
    # The start is robust at the full radius; the first epochs attack with at most half of it.
    scores = [(0.9, 0.5), (0.9, 0.2), (0.9, 0.1)]
    result, _ = tuned(monkeypatch, scores, SHORT.but(epochs=2, attack="rs-fgsm", eps_warmup=1.0))

    assert result.history["train_attacked"].min() > 0.7
    assert not result.history["rolled_back"].any()


def test_overfitting_is_checked_in_the_last_part_of_a_growing_radius(monkeypatch):
    monkeypatch.setattr("robustkit.defenses.training.guards.overfitted", lambda inner, worst: True)
    result, _ = tuned(monkeypatch, [(0.9, 0.3)] * 7, SHORT.but(epochs=6, attack="fgsm", eps_warmup=1.0))

    assert result.history["rolled_back"].tolist() == [False] * 5 + [True]


def test_a_roll_back_restores_the_weights(monkeypatch):
    result, network = tuned(monkeypatch, [(0.9, 0.3), (0.9, 0.0), (0.9, 0.1)], SHORT.but(attack="fgsm"))

    assert result.best_epoch == 0
    assert same_weights(network, net())


def test_a_collapse_is_named_and_never_kept(monkeypatch):
    # Predicting one class is correct on a tenth of all images under any attack: more than a start that is not robust.
    judge_as(monkeypatch, [(0.9, 0.0)] + [(0.1, 0.1)] * 3)
    network = net()
    result = finetune(network, TRAIN, VAL, eps=0.1, recipe=SHORT.but(epochs=9))

    assert (result.status, result.best_epoch, len(result.history)) == ("collapsed", 0, 3)
    assert any("collapsed" in note and "lower lr to 0.005" in note for note in result.notes)
    assert same_weights(network, net())


def test_patience_ends_a_training_early(monkeypatch):
    scores = [(0.9, 0.0), (0.9, 0.3)] + [(0.9, 0.2)] * 8
    result, _ = tuned(monkeypatch, scores, SHORT.but(epochs=9, patience=2, attack="pgd:steps=4"))

    assert (result.status, result.best_epoch, len(result.history)) == ("stopped early", 1, 3)
