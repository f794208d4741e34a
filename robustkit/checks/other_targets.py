"""Wrong classes one by one, on images that stand: an untargeted loss can lead between several of them.

After label smoothing the wrong classes tie, and an untargeted attack moves towards all of them at once.
"""

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.check import Rule
from robustkit.checks.survivors import judge_survivors, searchable, survivors

PROBE = AttackProbe(
    {"standard": "apgd-t:steps=40,targets=5", "full": "apgd-t:steps=100,targets=9"}, {"standard": 24, "full": 64},
    survivors, searchable,
)  # fmt: skip
RULE = Rule(
    name="other_targets",
    title="Targeted search finds nothing more",
    level="standard",
    severity="invalidating",
    note="targeted attacks find more",
    remedy="Add --attack apgd-t to robustkit evaluate, or take --attack default.",
    judge=judge_survivors((PROBE,), "targeted search (APGD at the likeliest wrong classes)"),
    probes=(PROBE,),
)
