"""What can go wrong in adversarial training, told from recorded accuracies alone, and the sentences that name it."""

from collections.abc import Sequence

from .recipe import Recipe
from .selection import ValidationScore

# Share of the radius that an epoch must begin with before it can be called overfitted. At less, what learns at a small
# radius and forgets some of the large one is as safe from the inner attack as one that overfits: a robust net of digits
# that went from 47 % to 22 % while the radius was two fifths was sent back to its start.
GROWN = 0.8
ROBUST = 0.05  # share of validation images that survive from which a start counts as robust

_ABOVE_CHANCE = 0.1  # of the way from chance to perfect: a network that learnt anything is further
_TIMES_CHANCE = 3  # or this often chance: of a hundred classes one in ten right is much
_FALL = 0.2  # Wong et al. 2020, arXiv:2001.03994: a fall of robust accuracy by more points is no fluctuation
_HALVED = 0.5  # where robust accuracy is low, losing half of it says as much
_NOTICED = 0.05  # of all images: smaller falls are noise of small validation sets
_OPENED = 0.1  # by how much the gap to the inner attack must grow
_SAFE = 0.7  # under the inner attack; the radius may have been smaller in the best epoch, and more safe from it
_MASKED = 0.05  # plain adversarial training comes to 0.08 on digits: more is a sign of masking, and no proof
_GIVEN_UP = 3  # collapsed epochs in a row: what says one class only has hardly a gradient left to recover by
# Digits, resnet18: frozen statistics end at chance with lr 0.05 and learn with 0.01.
_FROZEN_LR = 0.0125
_SMOOTH = 0.2  # Pang et al. 2021, arXiv:2010.00467: more does harm; on digits 0.3 hides 12 points from cross-entropy


def collapsed(clean: float, chance: float) -> bool:
    """Whether an accuracy is hardly above saying the commonest class every time.

    Args:
        clean: accuracy on clean validation images.
        chance: share of the commonest class among them.
    """
    return clean < min(chance + _ABOVE_CHANCE * (1 - chance), _TIMES_CHANCE * chance)


def hopeless(clean: Sequence[float], chance: float) -> bool:
    """Whether a network that had learnt something lost it for several epochs, so that going on is of no use.

    Args:
        clean: accuracy at the start and after each epoch.
        chance: share of the commonest class.
    """
    fallen = [collapsed(value, chance) for value in clean]
    return all(fallen[-_GIVEN_UP:]) and not all(fallen)


def overfitted(inner: Sequence[float], worst: Sequence[float]) -> bool:
    """Whether the last epoch shows catastrophic overfitting: safe from the inner attack, and from nothing else.

    Wong et al. 2020, arXiv:2001.03994; Andriushchenko & Flammarion 2020, arXiv:2007.02617. A network that merely
    loses both, or gains neither, has another trouble.

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


def before(recipe: Recipe, start: ValidationScore, *, prefix: bool, norms: bool, attacks: bool) -> list[str]:
    """What should be known before training begins.

    Args:
        recipe: all choices.
        start: the network on validation images.
        prefix: whether its first layers are frozen.
        norms: whether it has BatchNorm.
        attacks: whether adversarial images are learnt from.
    """
    weak = attacks and start.worst < ROBUST
    notes = []
    if prefix and weak:
        notes.append(
            f"The frozen layers are not robust: {start.worst:.1%} of validation images withstand at the start, and "
            "what frozen layers let through, later ones cannot mend; freeze none, or start from a robust checkpoint."
        )
    if recipe.bn == "frozen" and norms and weak and recipe.optimizer == "sgd" and recipe.lr > _FROZEN_LR:
        notes.append(
            "Frozen BatchNorm no longer scales the steps, and from a start that is not robust such trainings collapse; "
            f"take lr={recipe.lr / 4:g} and clip=1."
        )
    if recipe.bn != "batch" and not norms:
        notes.append(f"The network has no BatchNorm, so bn={recipe.bn} changes nothing.")
    if recipe.bn == "frozen-prefix" and recipe.freeze == "none" and not prefix:
        notes.append("Nothing is frozen, so bn=frozen-prefix is the same as bn=batch; freeze a prefix.")
    if recipe.label_smoothing > _SMOOTH:
        notes.append(
            f"label_smoothing={recipe.label_smoothing:g} can hide gradients from attacks on cross-entropy; trust the "
            "worst of several attacks alone."
        )
    return notes


def of_masking(level: ValidationScore) -> str | None:
    """A sentence if cross-entropy alone makes the network look much more robust than it is."""
    if level.gap <= _MASKED:
        return None
    return (
        f"The attack on cross-entropy alone leaves {level.ce:.1%} of validation images, the worst of two attacks "
        f"{level.worst:.1%}: do not trust a number from cross-entropy alone; the more they differ, the likelier it is "
        "that gradients are masked."
    )


def of_collapse(recipe: Recipe, clean: float, epoch: int) -> str:
    """A sentence for a network that says one class only, `epoch` being the last (from 1)."""
    less = "" if recipe.clip is not None else ", set clip=1"
    return (
        f"The network collapsed: after epoch {epoch} it was right on {clean:.1%} of validation images, about what one "
        f"class for all would be; lower lr to {recipe.lr / 4:g}{less}, or let the radius grow longer (eps_warmup)."
    )


def of_overfitting(inner: float, worst: float, epoch: int, best: int, then: str | None) -> str:
    """A sentence for catastrophic overfitting in an epoch (from 1) and what was done about it."""
    done = f"went back to epoch {best} and on with {then}" if then else f"stopped, and kept epoch {best}"
    return (
        f"Catastrophic overfitting in epoch {epoch}: right on {inner:.1%} under the inner attack and on {worst:.1%} "
        f"under a strong one; {done}."
    )
