"""What is told from recorded accuracies."""

from typing import ClassVar

import pytest
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.training.guards import before, collapsed, hopeless, of_masking, overfitted
from robustkit.defenses.training.selection import ValidationScore

from tests.defenses.nets import SHORT, TRAIN, VAL, net

WEAK = ValidationScore(0.98, 0.01, 0.0)

# Accuracy under the inner attack on training images and under a strong one on validation images, by epoch.
# Shaped as in Wong et al. 2020, figure 1: FGSM at 8/255, robust up to an epoch, then nothing of it within one.
SUDDEN = ([0.30, 0.38, 0.42, 0.45, 0.46, 0.85], [0.25, 0.33, 0.37, 0.40, 0.41, 0.01])
# Digits, plain FGSM at 0.3: robust accuracy peaked at 8.2 % and fell to 1 %.
SMALL = ([0.02, 0.10, 0.15, 0.18, 0.20, 0.27], [0.0, 0.02, 0.05, 0.08, 0.082, 0.01])


def first(inner, worst):
    return next((epoch for epoch in range(len(worst)) if overfitted(inner[: epoch + 1], worst[: epoch + 1])), None)


@pytest.mark.parametrize("trace", [SUDDEN, SMALL])
def test_catastrophic_overfitting_is_seen_in_the_epoch_it_happens(trace):
    assert first(*trace) == 5


@pytest.mark.parametrize(
    ("inner", "worst"),
    [
        ([0.30, 0.40, 0.45, 0.47], [0.28, 0.36, 0.40, 0.41]),  # all is well
        ([0.30, 0.45, 0.60, 0.75], [0.28, 0.40, 0.39, 0.36]),  # robust overfitting, slow
        ([0.30, 0.45, 0.10, 0.10], [0.28, 0.40, 0.10, 0.10]),  # collapse: safe from nothing
        ([0.95, 0.80, 0.60, 0.50], [0.05, 0.20, 0.33, 0.38]),  # the radius grows
        ([0.05, 0.05, 0.06], [0.03, 0.02, 0.01]),  # too little to fall from
        ([0.3], [0.3]),
        ([], []),
    ],
)
def test_what_is_no_catastrophic_overfitting(inner, worst):
    assert first(inner, worst) is None


def test_collapse_is_told_from_chance():
    assert collapsed(0.101, 0.10)
    assert not collapsed(0.288, 0.10)  # little, but learnt
    assert collapsed(0.5, 0.5)  # two classes
    assert collapsed(0.012, 0.01)  # a hundred
    assert not collapsed(0.08, 0.01)  # eight times better than one class for all
    assert not collapsed(0.6, 0.5)
    assert hopeless([0.9, 0.1, 0.1, 0.1], 0.1)
    assert not hopeless([0.1, 0.1, 0.9, 0.1, 0.1], 0.1)
    assert not hopeless([0.1, 0.1], 0.1)
    assert not hopeless([0.9, 0.1, 0.1], 0.1)
    assert not hopeless([0.1, 0.1, 0.1, 0.1], 0.1)  # it may still begin to learn


def test_masking_is_told_from_the_gap():
    assert of_masking(ValidationScore(0.9, 0.40, 0.36)) is None
    assert "30.9%" in of_masking(ValidationScore(0.9, 0.434, 0.309))


@pytest.mark.parametrize(
    ("changes", "start", "prefix", "words"),
    [
        ({}, WEAK, False, None), ({}, WEAK, True, "frozen layers"), ({}, ValidationScore(0.9, 0.4, 0.4), True, None),
        ({"bn": "frozen"}, WEAK, False, "lr=0.0125 and clip=1"), ({"bn": "frozen", "lr": 0.01}, WEAK, False, None),
        ({"bn": "frozen"}, ValidationScore(0.9, 0.4, 0.4), False, None),
        ({"label_smoothing": 0.3}, WEAK, False, "hide"),
        ({"bn": "frozen-prefix"}, WEAK, False, "same as bn=batch"),
        ({"label_smoothing": 0.1}, WEAK, False, None),
    ],
)  # fmt: skip
def test_what_is_said_before(changes, start, prefix, words):
    notes = before(Recipe(**changes), start, prefix=prefix, norms=True, attacks=True)

    assert notes == [] if words is None else words in " ".join(notes)


def tuned(monkeypatch, levels, recipe, **more):
    """A training whose epochs are judged as recorded."""
    answers = iter(levels)
    monkeypatch.setattr("robustkit.defenses.training.selection.Judge.level", lambda self, network: next(answers))
    network = net()
    return finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, **more), network


def test_a_training_that_overfits_goes_back_and_on_with_a_stronger_attack(monkeypatch):
    levels = [
        ValidationScore(0.9, 0.3, 0.3),
        ValidationScore(0.8, 0.5, 0.45),
        ValidationScore(0.9, 0.02, 0.0),
        ValidationScore(0.8, 0.6, 0.5),
    ]
    recipe = SHORT.but(epochs=3, attack="rs-fgsm", lr=1e-4)

    class Told:
        said: ClassVar[list[str]] = []

        def training(self, text, share): ...

        def say(self, text):
            self.said.append(text)

    found, _ = tuned(monkeypatch, levels, recipe, watch=Told())

    assert list(found.history["rolled_back"]) == [False, True, False]
    assert (found.best_epoch, found.status) == (3, "finished")
    assert any("went back to epoch 1 and on with pgd:steps=2" in text for text in Told.said)
    assert any("Catastrophic overfitting in epoch 2" in note for note in found.notes)


def test_forgetting_at_a_small_radius_is_no_overfitting(monkeypatch):
    # The start is robust at the full radius; what the first epochs attack with is half of it at most.
    levels = [ValidationScore(0.9, 0.5, 0.5), ValidationScore(0.9, 0.2, 0.2), ValidationScore(0.9, 0.1, 0.1)]
    recipe = SHORT.but(epochs=2, attack="rs-fgsm", lr=1e-4, eps_warmup=1.0)
    found, _ = tuned(monkeypatch, levels, recipe)

    assert found.history["train_attacked"].min() > 0.7
    assert not found.history["rolled_back"].any()


def test_overfitting_is_seen_while_the_radius_grows_its_last_part(monkeypatch):
    monkeypatch.setattr("robustkit.defenses.training.guards.overfitted", lambda inner, worst: True)
    levels = [ValidationScore(0.9, 0.3, 0.3)] * 7
    found, _ = tuned(monkeypatch, levels, SHORT.but(epochs=6, attack="fgsm", lr=1e-4, eps_warmup=1.0))

    assert found.history["rolled_back"].tolist() == [False] * 5 + [True]


def test_without_the_guard_it_goes_on(monkeypatch):
    levels = [
        ValidationScore(0.9, 0.3, 0.3),
        ValidationScore(0.8, 0.5, 0.45),
        ValidationScore(0.9, 0.02, 0.0),
        ValidationScore(0.8, 0.6, 0.5),
    ]
    found, _ = tuned(monkeypatch, levels, SHORT.but(epochs=3, attack="rs-fgsm", lr=1e-4, guard=False))

    assert not found.history["rolled_back"].any()


def test_a_roll_back_forgets_what_was_learnt_since(monkeypatch):
    levels = [ValidationScore(0.9, 0.3, 0.3), ValidationScore(0.9, 0.02, 0.0), ValidationScore(0.9, 0.1, 0.1)]
    found, network = tuned(monkeypatch, levels, SHORT.but(attack="fgsm", lr=1e-4))

    assert found.best_epoch == 0
    assert all((mine == own).all() for mine, own in zip(network.parameters(), net().parameters(), strict=True))


def test_a_collapse_is_named_and_never_kept(monkeypatch):
    # One class for all is right on a tenth of all images under any attack: more than a start that is not robust.
    levels = [ValidationScore(0.9, 0.0, 0.0)] + [ValidationScore(0.1, 0.1, 0.1)] * 3
    found, network = tuned(monkeypatch, levels, SHORT.but(epochs=9))

    assert (found.status, found.best_epoch, len(found.history)) == ("collapsed", 0, 3)
    assert any("collapsed" in note and "lower lr to 0.005" in note for note in found.notes)
    assert all((mine == own).all() for mine, own in zip(network.parameters(), net().parameters(), strict=True))


def test_patience_ends_a_training_early(monkeypatch):
    levels = [ValidationScore(0.9, 0.0, 0.0), ValidationScore(0.9, 0.3, 0.3)] + [ValidationScore(0.9, 0.2, 0.2)] * 8
    found, _ = tuned(monkeypatch, levels, SHORT.but(epochs=9, patience=2, attack="pgd:steps=4", lr=1e-4))

    assert (found.status, found.best_epoch, len(found.history)) == ("stopped early", 1, 3)
