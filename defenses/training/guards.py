"""Detect failures of adversarial training from its recorded accuracies, and describe them in one sentence each."""

from collections.abc import Sequence

from .recipe import Recipe
from .selection import ValidationScore

# Share of the radius with which an epoch must begin before it is checked for overfitting. At a smaller radius, a
# network that learns the small radius and forgets the large one looks like one that overfits: a robust network on
# digits that fell from 47 % to 22 % while the radius was two fifths was reset to its start.
GROWN = 0.8
ROBUST = 0.05  # a start is robust if at least this share of validation images survives

_ABOVE_CHANCE = 0.1  # of the way from chance to 1: any network that has learned something is above it
_TIMES_CHANCE = 3  # or this many times chance: with a hundred classes, an accuracy of 10 % is far from chance
_FALL = 0.2  # Wong et al. 2020, arXiv:2001.03994: a larger fall of robust accuracy is not a fluctuation
_HALVED = 0.5  # where robust accuracy is low, losing half of it counts as well
_NOTICED = 0.05  # smaller falls are noise of small validation sets
_OPENED = 0.1  # the gap to the accuracy under the inner attack must grow by this much
_SAFE = 0.7  # accuracy under the inner attack that counts as high even if it fell: the radius may have grown since
_MASKED = 0.05  # plain adversarial training reaches 0.08 on digits: more is a sign of masking, not a proof
_GIVEN_UP = 3  # collapsed epochs in a row: a network that predicts one class has hardly a gradient to recover with
# Digits, resnet18: with frozen statistics the training ends at chance with lr 0.05 and learns with 0.01.
_FROZEN_LR = 0.0125
_SMOOTH = 0.2  # Pang et al. 2021, arXiv:2010.00467: more is harmful; on digits 0.3 hides 12 points from cross-entropy


def collapsed(clean: float, chance: float) -> bool:
    """Whether an accuracy is hardly above that of always predicting the most frequent class.

    Args:
        clean: accuracy on clean validation images.
        chance: share of the most frequent class among them.
    """
    return clean < min(chance + _ABOVE_CHANCE * (1 - chance), _TIMES_CHANCE * chance)


def hopeless(clean: Sequence[float], chance: float) -> bool:
    """Whether a network that had learned something has been collapsed for several epochs.

    Args:
        clean: accuracy at the start and after each epoch.
        chance: share of the most frequent class.
    """
    fallen = [collapsed(value, chance) for value in clean]
    return all(fallen[-_GIVEN_UP:]) and not all(fallen)


def overfitted(inner: Sequence[float], worst: Sequence[float]) -> bool:
    """Whether the last epoch shows catastrophic overfitting: robust against the inner attack, not against a strong one.

    Wong et al. 2020, arXiv:2001.03994; Andriushchenko & Flammarion 2020, arXiv:2007.02617. A network that is robust
    against neither does not count: it has another problem.

    Args:
        inner: accuracy under the inner attack on training images, by epoch.
        worst: accuracy under a strong attack on validation images, by epoch.
    """
    if len(worst) < 2:
        return False
    best = max(range(len(worst) - 1), key=lambda epoch: worst[epoch])
    fall = worst[best] - worst[-1]
    fell = fall > _FALL or (fall > _NOTICED and worst[-1] < _HALVED * worst[best])
    opened = inner[-1] - worst[-1] > inner[best] - worst[best] + _OPENED
    return fell and opened and inner[-1] >= min(inner[best], _SAFE)


def notes_before(
    recipe: Recipe, start: ValidationScore, *, prefix: bool, has_norms: bool, uses_attack: bool
) -> list[str]:
    """Sentences about choices of the recipe that are likely to disappoint on this network.

    Args:
        recipe: all choices.
        start: the network's accuracies before the training.
        prefix: whether its first layers are frozen.
        has_norms: whether it has BatchNorm.
        uses_attack: whether the objective uses adversarial images.
    """
    weak = uses_attack and start.worst < ROBUST
    notes = []
    if prefix and weak:
        notes.append(
            f"The frozen layers are not robust: {start.worst:.1%} of validation images survive the attack, "
            "and later layers cannot correct frozen ones; freeze none, or start from a robust checkpoint."
        )
    if recipe.bn == "frozen" and has_norms and weak and recipe.optimizer == "sgd" and recipe.lr > _FROZEN_LR:
        notes.append(
            "Frozen BatchNorm does not normalize the steps, and such trainings collapse from starts that are not "
            f"robust; use lr={recipe.lr / 4:g} and clip=1."
        )
    if recipe.bn != "batch" and not has_norms:
        notes.append(f"The network has no BatchNorm, so bn={recipe.bn} changes nothing.")
    if recipe.bn == "frozen-prefix" and recipe.freeze == "none" and not prefix:
        notes.append("No weight is frozen, so bn=frozen-prefix is the same as bn=batch; freeze a prefix.")
    if recipe.label_smoothing > _SMOOTH:
        notes.append(
            f"label_smoothing={recipe.label_smoothing:g} can hide gradients from attacks on cross-entropy; rely "
            "only on the worst of several attacks."
        )
    return notes


def masking_note(score: ValidationScore) -> str | None:
    """A sentence if the network looks much more robust under cross-entropy alone; else None."""
    if score.gap <= _MASKED:
        return None
    return (
        f"Accuracy on validation images is {score.ce:.1%} under the attack on cross-entropy and {score.worst:.1%} "
        "under the worst of two attacks: do not rely on cross-entropy alone; a large gap is a sign of masked gradients."
    )


def collapse_note(recipe: Recipe, clean: float, epoch: int) -> str:
    """A sentence for a network that predicts one class only; `epoch` is the last one, from 1."""
    clip = "" if recipe.clip is not None else ", set clip=1"
    return (
        f"The network collapsed: after epoch {epoch} its accuracy on validation images is {clean:.1%}, about that of "
        f"predicting one class for all; lower lr to {recipe.lr / 4:g}{clip}, or let the radius grow "
        "longer (eps_warmup)."
    )


def overfitting_note(inner: float, worst: float, epoch: int, best: int, next_attack: str | None) -> str:
    """A sentence for catastrophic overfitting in an epoch (from 1); `next_attack` is None if the training stops."""
    resumed = f"went back to epoch {best} and continued with {next_attack}"
    action = resumed if next_attack else f"stopped and kept epoch {best}"
    return (
        f"Catastrophic overfitting in epoch {epoch}: accuracy is {inner:.1%} under the inner attack and {worst:.1%} "
        f"under a strong one; {action}."
    )
