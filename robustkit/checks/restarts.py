"""More restarts change nothing: ten random starts, on images that stand.

Carlini et al. 2019, arXiv:1902.06705, section 5.3, ask for ten, and that more do not help.
"""

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.check import Rule
from robustkit.checks.survivors import judge_survivors, searchable, survivors

PROBE = AttackProbe({"full": "pgd:steps=40,restarts=10"}, {"full": 64}, survivors, searchable)
RULE = Rule(
    name="restarts",
    title="More restarts change nothing",
    level="full",
    severity="invalidating",
    note="more restarts find more",
    remedy="Add restarts, such as robustkit evaluate --attack pgd:restarts=10.",
    judge=judge_survivors((PROBE,), "ten random starts (PGD)"),
    probes=(PROBE,),
)
