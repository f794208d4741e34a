"""What a pilot leaves out of the members of an ensemble that cost much, and what it counts in their place.

The members of AutoAttack need up to 14,000 passes for an image that stands, and they break few of the images that the
first one left.
"""

from collections.abc import Sequence
from typing import NamedTuple

from robustkit.classifier.oracle import OracleCost
from robustkit.evaluation.plan import Passes, PlannedAttack
from robustkit.evaluation.threats import Threat
from robustkit.evidence.audit import draw

_PASSES = 10_000  # of one later member in one threat model, if its images stand,
_FEWEST = 4  # but it gets as many images as this


class Counted(NamedTuple):
    """How one attack of a pilot is counted."""

    weights: dict[int, float]  # by image: for how many images it stands, 1 or more
    charged: Passes | None = None  # to each of them; None where they are attacked


class Thinning:
    """Chooses which images the later members of an ensemble attack in a pilot.

    If a member costs much, it gets some random images, which stand for the others: without bias, because an image that
    one member leaves out is left out of those after it. A member without gradients gets none. It would take thousands
    of queries, one after the other, and images that reach it seldom break, so each is charged the whole budget. Where
    it does break them, as behind a masked gradient, that is too much. At a larger radius no image is left out at first.

    Args:
        seed: of the choice.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._weights: dict[tuple[Threat, str], dict[int, float]] = {}  # by threat and column: the latest
        self._counted: dict[tuple[Threat, str], Counted] = {}  # by threat and attack

    def counted(self, attack: PlannedAttack) -> Counted:
        """How the attack is counted, once it has been carried out."""
        return self._counted[attack.threat, attack.name]

    def left_out(self, attack: PlannedAttack, images: Sequence[int], cost: OracleCost) -> set[int]:
        """Which of `images` the attack leaves out; called for each attack of a plan, in its order."""
        column, key = (attack.threat, attack.column.name), (attack.threat, attack.name)
        before = self._weights.get(column)
        if before is None:
            self._weights[column] = dict.fromkeys(images, 1.0)
            self._counted[key] = Counted(self._weights[column])
            return set()
        reached = before.keys() & set(images)
        if attack.attack.sees != "gradients":
            self._counted[key] = Counted({image: before[image] for image in reached}, attack.at_most(cost))
            return set(images)
        kept = draw(self.seed, reached, _most(attack))
        weights = {image: before[image] * len(reached) / len(kept) for image in kept}
        # Images that are too far from other classes for this member stay: a later one may attack them.
        self._weights[column] = {**{image: before[image] for image in before.keys() - reached}, **weights}
        self._counted[key] = Counted(weights)
        return set(images) - kept


def _most(attack: PlannedAttack) -> int:
    """How many images a later member attacks at most."""
    cost = attack.attack.cost
    return max(_FEWEST, _PASSES // (attack.attack.trials * (cost.forwards + cost.backwards)))
