"""Mistakes of a user's own attack, each one sentence that names the attack."""

from dataclasses import dataclass, replace

import pytest
import torch
from robustkit.attacks import PGD

from robustkit import UserError, attack
from tests.problems import problem


@dataclass(frozen=True)
class Endless(PGD):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, done=after.done & False)


@dataclass(frozen=True)
class Forgetful(PGD):
    def step(self, state, seen):
        super().step(state, seen)


@dataclass(frozen=True)
class Cropping(PGD):
    def init(self, trials):
        start = super().init(trials)
        return replace(start, query=start.query[:, :, :4])


@dataclass(frozen=True)
class Doubling(PGD):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, query=after.query.double())


@dataclass(frozen=True)
class Dropping(PGD):
    def step(self, state, seen):
        return super().step(state, seen).take(torch.tensor([0]))


@pytest.mark.parametrize("eps", [1e-4, "minimum"])
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Endless, "Endless has not ended after"),
        (Forgetful, "Forgetful.step must return a State, not NoneType"),
        (Cropping, r"Cropping.init must leave the query's shape and type .* not \[4, 1, 4, 8\] of float32"),
        (Doubling, "Doubling.step must leave the query's shape and type .* of float64"),
        (Dropping, "Dropping.step must return a State of [0-9]+ rows, not of 1"),
    ],
)
def test_a_mistake_names_the_attack_and_what_it_must_do(kind, sentence, eps):
    made = problem("mlp", 1, 8, 8, count=4)

    with pytest.raises(UserError, match=sentence):
        attack(made.model, made.x, made.y, kind(eps, steps=3))


def test_many_radii_of_one_image_are_no_trial_without_end():
    made = problem("mlp", 1, 8, 8, count=4)
    result = attack(made.model, made.x, made.y, PGD("minimum", "L2", steps=9))

    assert result.success.all()
    assert (result.forwards > 2 * 10 + 10).any()
