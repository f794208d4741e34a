"""Search without gradients, on images that stand: random points of the ball, and Square's random search.

Athalye et al. 2018, arXiv:1802.00420, section 3.1: where gradients are useful, random sampling finds nothing that they
do not. Carlini et al. 2019 ask for it on every image that stands.
"""

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.check import Rule
from robustkit.checks.facts import Level
from robustkit.checks.survivors import judge_survivors, searchable, survivors

_COUNTS: dict[Level, int] = {"standard": 24, "full": 64}
NOISE = AttackProbe(
    {"standard": "noise:queries=100", "full": "noise:queries=1000"}, _COUNTS, survivors, searchable
)  # fmt: skip
SQUARE = AttackProbe(
    {"standard": "square:queries=300", "full": "square:queries=2000"}, _COUNTS, survivors, searchable
)  # fmt: skip
RULE = Rule(
    name="random_search",
    title="Search without gradients finds nothing more",
    level="standard",
    severity="invalidating",
    note="random search finds more",
    remedy="Add --attack square to robustkit evaluate, and find the layer that masks gradients: robustkit diagnose.",
    judge=judge_survivors((NOISE, SQUARE), "a search without gradients (random points and Square)"),
    probes=(NOISE, SQUARE),
)
