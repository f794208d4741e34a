"""A sign of masked gradients in the evidence: attacks without gradients break what gradients left, and more of it.

Athalye et al. 2018, arXiv:1802.00420, section 3.1: where gradients are useful, an attack that follows them is the
stronger one. The rule counts images, so it holds for the members of an ensemble as for several attacks that a user
names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from robustkit.evidence.store import AttackRecord
from robustkit.evidence.worst_threat import worst_threat

NOTE = "gradients look masked"

# An image that one or a few steps left says nothing about its gradients.
_STEPS = 10
# One image can be luck: an honest network has some that a random search reaches and ten steps do not.
_FEWEST = 2

Records = Mapping[tuple[str, str, str], Sequence[AttackRecord]]  # by norm, eps_text and attack


class BrokenImages(NamedTuple):
    """How many images which attacks broke at one threat."""

    by_gradients: int
    left: int  # attacked with at least ten gradients, and broken by none of these attacks
    without_gradients: int  # of `left`, broken by attacks that use no gradient

    @property
    def masked(self) -> bool:
        """Whether attacks without gradients broke more than gradients did, of what these left."""
        return self.without_gradients >= _FEWEST and self.without_gradients > self.by_gradients


def gradient_attacks(records: Records) -> set[str]:
    """The attacks that took backward passes."""
    return {name for (_, _, name), rows in records.items() if any(row.backwards for row in rows)}


def broken_images(attacks: Mapping[str, Iterable[AttackRecord]], with_gradients: set[str]) -> BrokenImages:
    """The counts at one threat.

    Args:
        attacks: rows of each attack.
        with_gradients: names of those that use gradients.
    """
    tried, broken, others = set[int](), set[int](), set[int]()
    for name, rows in attacks.items():
        for row in rows:
            if name not in with_gradients:
                others |= {row.sample} if row.success else set()
            elif row.success:
                broken.add(row.sample)
            elif row.backwards >= _STEPS:
                tried.add(row.sample)
    left = tried - broken
    return BrokenImages(len(broken), len(left), len(left & others))


def warning(model: str, threats: Mapping[str, BrokenImages]) -> str | None:
    """One sentence about the threat where it shows most, None if gradients look useful everywhere.

    Args:
        model: its name.
        threats: counts by "Linf 0.1".
    """
    threat = worst_threat({threat: each.without_gradients for threat, each in threats.items() if each.masked})
    if threat is None:
        return None
    counts = threats[threat]
    return (
        f"{model} at {threat}: attacks without gradients broke {counts.without_gradients} of the {counts.left} images "
        f"that attacks with gradients left, which broke only {counts.by_gradients}. Its gradients are probably masked, "
        "and its robust accuracy is too high; find the layer and the remedy with robustkit diagnose."
    )
