"""A sign of masked gradients in the evidence: attacks without gradients break what gradients left, and more of it.

Athalye et al. 2018, arXiv:1802.00420, section 3.1: where gradients are useful, an attack that follows them is the
stronger one. The rule counts images, so it holds for the members of an ensemble as for several attacks that a user
names.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import AttackRows, ModelFacts, RunThreat
from robustkit.checks.image_set import ImageSet

MASKED = "gradients look masked"

# An image that one or a few steps left says nothing about its gradients.
_STEPS = 10
# One image can be luck: an honest network has some that a random search reaches and ten steps do not.
_FEWEST = 2


class BrokenImages(NamedTuple):
    """How many images which attacks broke at one threat."""

    by_gradients: int
    left: int  # attacked with at least ten gradients, and broken by none of these attacks
    tried: int  # of those left, attacked without gradients
    images: tuple[int, ...]  # of those left, broken by attacks that use no gradient

    @property
    def without_gradients(self) -> int:
        """How many of those left were broken by attacks that use no gradient."""
        return len(self.images)

    @property
    def masked(self) -> bool:
        """Whether attacks without gradients broke more than gradients did, of what these left."""
        return self.without_gradients >= _FEWEST and self.without_gradients > self.by_gradients


def gradient_attacks(records: AttackRows) -> set[str]:
    """The attacks that took backward passes."""
    return {name for (_, _, name), rows in records.items() if rows.backwards.any()}


def broken_images(attacks: Mapping[str, AttackColumns], with_gradients: set[str]) -> BrokenImages:
    """The counts at one threat.

    Args:
        attacks: rows of each attack.
        with_gradients: names of those that use gradients.
    """
    following = [rows for name, rows in attacks.items() if name in with_gradients]
    broken = ImageSet.union(rows.broken for rows in following)
    tried = ImageSet.union(rows.images_where((rows.success == 0) & (rows.backwards >= _STEPS)) for rows in following)
    others = [rows for name, rows in attacks.items() if name not in with_gradients]
    left = tried - broken
    # A member of an ensemble has rows without passes of images that it left out.
    left_to_others = left & ImageSet.union(
        rows.images_where((rows.forwards > 0) | (rows.success == 1)) for rows in others
    )
    found = left & ImageSet.union(rows.broken for rows in others)
    return BrokenImages(len(broken), len(left), len(left_to_others), tuple(sorted(found)))


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat."""
    if facts.transferred:
        yield Finding("", "not_applicable", "All attacks queried a surrogate model.")
        return
    with_gradients = gradient_attacks(facts.attacked)
    for place in facts.places:
        survive = bool(facts.survivors(place))
        yield _finding(place, facts.searching_under(place), with_gradients, survive=survive)


def _finding(
    place: RunThreat, rows: Mapping[str, AttackColumns], with_gradients: set[str], *, survive: bool
) -> Finding:
    counts = broken_images(rows, with_gradients)
    numbers = {"by_gradients": counts.by_gradients, "left": counts.left, "without": counts.without_gradients}
    if not set(rows) - with_gradients or not set(rows) & with_gradients:
        missing = "gradients" if not set(rows) & with_gradients else "queries alone"
        return Finding(place.text, "not_applicable", f"No attack with {missing} was run.", (), numbers)
    if counts.left and not counts.tried:
        images = f"{counts.left} image{'' if counts.left == 1 else 's'}"
        text = f"No attack without gradients attacked the {images} that gradient attacks did not break."
        return Finding(place.text, "not_applicable", text, (), numbers)
    if counts.masked:
        so = "and the reported robust accuracy is too high" if survive else "though no image survived all attacks"
        text = (
            f"attacks without gradients broke {counts.without_gradients} of the {counts.left} images that gradient "
            f"attacks did not break; gradient attacks broke only {counts.by_gradients}. The model's gradients are "
            f"probably masked, {so}."
        )
        return Finding(place.text, "failed", text, counts.images, numbers)
    text = (
        f"attacks without gradients broke {counts.without_gradients} of the {counts.tried} images that they attacked "
        "and attacks with gradients did not break."
    )
    return Finding(place.text, "ok", text, counts.images, numbers)


RULE = Rule(
    name="black_box_wins",
    title="Attacks without gradients do not beat gradient attacks",
    level="quick",
    severity="invalidating",
    note=MASKED,
    remedy="Find the layer and the remedy with robustkit diagnose.",
    judge=judge,
    worst_of=lambda finding: finding.numbers["without"],
)
