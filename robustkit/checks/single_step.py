"""A sign of masked gradients: one step breaks images that many steps leave.

Athalye et al. 2018, arXiv:1802.00420, section 3.1, the first of their signs. The counts are paired, image by image, so
that a few images of luck are not taken for it: exact McNemar test, one-sided.
"""

from collections.abc import Iterator

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.check import Finding, Rule, graded
from robustkit.checks.facts import ModelFacts, RunThreat
from robustkit.checks.image_set import ImageSet
from robustkit.statistics.paired import PairedCounts, mcnemar

_ITERATIVE = 10  # gradients on an image that stands, from which on an attack counts as iterative
_SINGLE = 2
_LEVEL = 0.01
_FEWEST = 2
_NOTED = 0.01  # share of images from which on it is a warning


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat."""
    for place in facts.places:
        rows = {name: each for name, each in facts.under(place).items() if "/" not in name and len(each)}
        single = {name for name, each in rows.items() if 0 < _most_gradients(each) <= _SINGLE}
        iterative = {name for name, each in rows.items() if _most_gradients(each) >= _ITERATIVE}
        if not single or not iterative:
            yield Finding(place.text, "not_applicable", "This needs a single-step and an iterative attack in one run.")
        else:
            yield _finding(place, facts, _broken(rows, single), _broken(rows, iterative))


def _finding(place: RunThreat, facts: ModelFacts, single: ImageSet, iterative: ImageSet) -> Finding:
    only_single, only_iterative = single - iterative, iterative - single
    counts = PairedCounts(0, len(only_iterative), len(only_single), 0)
    p = mcnemar(counts, first_is_lower=True)
    many = len(only_single) >= _FEWEST
    worse = many and p < _LEVEL
    noted = many and len(only_single) > _NOTED * max(len(facts.correct), 1)
    text = (
        f"the single step broke {len(only_single)} images that no iterative attack broke, and iterative attacks "
        f"{len(only_iterative)} that the single step did not."
    )
    status = graded(failed=worse, warning=noted)
    numbers = {"single_only": len(only_single), "iterative_only": len(only_iterative), "p": p}
    return Finding(place.text, status, text, tuple(sorted(only_single)), numbers)


def _most_gradients(rows: AttackColumns) -> int:
    return int(rows.backwards.max())


def _broken(rows: dict[str, AttackColumns], names: set[str]) -> ImageSet:
    return ImageSet.union(rows[name].broken for name in names)


RULE = Rule(
    name="single_step",
    title="Many steps find what one step finds",
    level="quick",
    severity="invalidating",
    note="one step beats many",
    remedy="Find the layer that misleads the longer search with robustkit diagnose.",
    judge=judge,
)
