"""More steps change nothing: a longer search from another random start, on images that stand.

Carlini et al. 2019, arXiv:1902.06705, section 5.3: doubling the steps must not help.
"""

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.check import Rule
from robustkit.checks.survivors import judge_survivors, searchable, survivors

PROBE = AttackProbe(
    {"standard": "apgd:steps=200", "full": "apgd:steps=300"}, {"standard": 24, "full": 64}, survivors, searchable
)
RULE = Rule(
    name="longer_search",
    title="More steps change nothing",
    level="standard",
    severity="invalidating",
    note="more steps find more",
    remedy="Take a longer attack, or the ensembles: robustkit evaluate --attack default, or --audit K.",
    judge=judge_survivors((PROBE,), "a longer search (APGD from another random start)"),
    probes=(PROBE,),
)
