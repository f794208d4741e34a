"""What every attack guarantees: all checks of `robustkit.testing` on all attacks and all their norms.

A new file in attacks/ is tested here without being named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from zlib import crc32

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from robustkit.attacks import PGD
from robustkit.attacks.transfer._copies import Copies

from robustkit.primitives.ball import FREE, NORMS
from robustkit.primitives.protocol import Attack, HookedAttack, Seen, State, TrialCost, Trials
from robustkit.primitives.registry import classes
from robustkit.testing import CHECKS, STATE_CHECKS, AttackUnderTest, check_attack

# Two busy cores: with more threads torch waits for its own workers.
torch.set_num_threads(1)

# Threats that render images are checked with one attack each; rotation and translation are parts of "spatial".
RENDERED = {"pgd": ("spatial", "flow", "color")}


# They walk along one family of images, and the norm only measures how far away they are.
WALKS = {
    "gaussian_blur": ("L2",),
    "contrast_reduction": ("L2",),
    "salt_and_pepper": ("L2",),
    "uniform_noise": ("Linf",),
}


def threats(name: str, attack: type[Attack]) -> tuple[str, ...]:
    """What an attack is checked in."""
    if name in WALKS:
        return WALKS[name]
    # Those with hooks or copies step as MI-FGSM does, which is here in all its norms, as PGN is for copies.
    if issubclass(attack, (HookedAttack, Copies)) and name != "pgn":
        return attack.norms[:1]
    rendered = RENDERED.get(name, attack.norms[:1])
    return tuple(norm for norm in attack.norms if norm in (*NORMS, "lpips") or norm in rendered)


# Networks for attacks that need layers of a kind, or show more on them.
NETWORKS = {
    "fia": {"spatial": "residual cnn"},
    "ghost": {"spatial": "residual cnn"},
    "sgm": {"flat": "residual mlp", "spatial": "residual cnn"},
    "pna": {"flat": "attentive", "spatial": "attentive"},
    "tgr": {"flat": "attentive", "spatial": "attentive"},
}


# Radii for attacks that break no image in the usual one, because they try few directions.
RADII = {"gaussian_blur": {"Linf": 0.3, "L2": 1.5}, "salt_and_pepper": {"L2": 1.5, "L1": 4.0, "L0": 8.0}}


@cache
def subject(name: str, norm: str) -> AttackUnderTest:
    radius = RADII.get(name, {}).get(norm)
    return AttackUnderTest(classes()[name](1, norm), radius=radius, **NETWORKS.get(name, {}))


# Checked in every norm of an attack; the others are mostly the same code in each, and are checked in one norm, which
# differs from check to check. That neighbours change nothing in a norm is seen in the states alone, at a tenth of the
# time of whole runs.
IN_EVERY_NORM = {
    "every_point_lies_in_the_ball_and_in_the_box", "every_success_is_confirmed_by_a_fresh_forward",
    "images_without_room_stay_as_they_are", "a_trial_does_not_depend_on_its_neighbours",
}  # fmt: skip
# What the engine guarantees, whatever `init` and `step` do (that these mix no rows is checked in the states of each
# attack): checked on one attack of each kind, which differs from check to check. Hooks and an objective are an attack's
# own code in the engine's hands, so each attack with hooks and each objective is a kind of its own.
BY_THE_ENGINE = {
    "it_queries_exactly_as_often_as_it_counts", "the_machine_never_does_less_than_what_is_counted",
    "a_success_cancels_the_restarts", "a_target_is_reached_by_that_class_alone",
    "a_flip_to_another_class_counts_in_a_targeted_trial", "the_caller_gets_everything_back_as_it_was",
    "the_model_comes_back_as_it_was_when_it_fails", "a_gradient_that_is_not_a_number_is_an_error",
    "pixels_of_any_range_are_attacked_alike", "logits_of_any_float_type_will_do",
    "batch_size_order_and_neighbours_do_not_change_a_bit",
}  # fmt: skip
# Have no code of their own for a norm; GeoDA's hyperplane is FAB's, and its many small steps take the longest of all.
# The step of Brendel-Bethge is checked against a general solver in each norm.
ALIKE = {"bim", "fgsm", "geoda", "brendel_bethge"}


def kind(name: str) -> tuple[object, ...]:
    """All that the engine tells attacks apart by."""
    attack = subject(name, threats(name, classes()[name])[0]).attack
    bases = [base.__name__ for base in type(attack).__mro__ if base.__module__.startswith("robustkit.primitives")]
    traits = (attack.sees, attack.keeps_best, attack.seeks_nearest, attack.bisects, attack.guesses, attack.ball.renders)
    return (*bases, *traits, attack.objective.__qualname__, name if isinstance(attack, HookedAttack) else "")


KINDS = {name: kind(name) for name in classes()}


def chosen(check: str, among: Sequence[str], name: object) -> str:
    """One of several, which differs from check to check."""
    return among[crc32(f"{check} {name}".encode()) % len(among)]


def checked_in(check: str, name: str) -> tuple[str, ...]:
    """The norms of an attack in which a check runs."""
    norms = threats(name, classes()[name])
    if check == "pixels_outside_of_a_mask_stay_as_they_are":
        norms = tuple(norm for norm in norms if norm in NORMS)
        return (chosen(check, norms, name),) if norms else ()
    if check in BY_THE_ENGINE and name != chosen(check, [other for other in KINDS if KINDS[other] == KINDS[name]], ""):
        return ()
    if name in ALIKE:
        return norms[:1]
    return norms if check in IN_EVERY_NORM else (chosen(check, norms, name),)


def is_spared(check: str, name: str) -> bool:
    """Whether only `pytest -m slow` runs a check on an attack: so it is with half of them, each attack keeping others.

    What is checked in every norm, and what is checked on one attack of each kind, is never spared.
    """
    return check not in IN_EVERY_NORM | BY_THE_ENGINE and crc32(f"{name} {check}".encode()) % 2 == 0


def cases(checks: Sequence[Callable[..., None]]) -> list[Any]:
    """Which checks run on which attacks in which norms."""
    return [
        pytest.param(
            check,
            name,
            norm,
            id=f"{check.__name__}-{name}-{norm}",
            marks=[pytest.mark.slow] if is_spared(check.__name__, name) else [],
        )
        for name in classes()
        for check in checks
        for norm in checked_in(check.__name__, name)
    ]


@pytest.mark.parametrize(("check", "name", "norm"), cases([check for check in CHECKS if check not in STATE_CHECKS]))
def test_every_attack_keeps_the_contract(check, name, norm):
    check(subject(name, norm))


@pytest.mark.parametrize(("check", "name", "norm"), cases(STATE_CHECKS))
@settings(max_examples=2)
@given(shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), key=st.integers(-(2**40), 2**40))
def test_the_states_of_every_attack_keep_the_contract(check, name, norm, shape, key):
    if len(shape) < 2 and norm in FREE:
        shape = (1, *shape)
    check(subject(name, norm), shape, key)


@dataclass(frozen=True)
class Averaging(PGD):
    """Takes one gradient for the whole batch."""

    def step(self, state: State, seen: Seen) -> State:
        return super().step(state, replace(seen, grad=seen.grad.mean(0, keepdim=True).expand_as(seen.grad)))


class Drawing(PGD):
    """Draws from the global generator."""

    def start(self, trials: Trials) -> torch.Tensor:
        return self.ball.project(trials.x, trials.x + 0.1 * torch.randn_like(trials.x))


class Writing(PGD):
    """Writes into the state that it is given."""

    def step(self, state: State, seen: Seen) -> State:
        state.query.clamp_(0.1, 0.9)
        return super().step(state, seen)


class Doubling(PGD):
    """Counts each query twice, so that it ends early and its results say that it needed more."""

    def step(self, state: State, seen: Seen) -> State:
        return replace(super().step(state, seen), queries=state.queries + 2)


class Cheap(PGD):
    """Declares fewer passes than it needs."""

    @property
    def cost(self) -> TrialCost:
        return TrialCost(1, 1)


class Aimless(PGD):
    """Climbs away from the label for every target class."""

    def objective(self, logits: torch.Tensor, trials: Trials) -> torch.Tensor:
        none = torch.full_like(trials.y, -1)
        return super().objective(logits, replace(trials, loss_target=none, target=none))


class Shifted(Aimless):
    """Adds the number of the target class to its objective, which changes no gradient."""

    def objective(self, logits: torch.Tensor, trials: Trials) -> torch.Tensor:
        return super().objective(logits, trials) + trials.loss_target


@pytest.mark.parametrize(
    ("attack", "sentence"),
    [
        (Shifted(0.1, random_start=False), "two target classes lead to one point"),
        (Aimless(0.1), "the objective is the same for every target class"),
        (Averaging(0.1), "an image attacked alone gives another result"),
        (Drawing(0.1), "an image attacked alone gives another result"),
        (Writing(0.1), "Writing.step writes into `query`"),
        (Doubling(0.1), "a step does not add 1 to `queries`"),
        (Cheap(0.1), "a trial needs more forwards than"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, PGD) else "",
)
def test_an_attack_that_breaks_the_contract_is_told_which_part(attack, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_attack(attack)
