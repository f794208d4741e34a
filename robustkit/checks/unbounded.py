"""An attack without a bound reaches chance: where every image is allowed, no image can be robust.

Athalye et al. 2018, arXiv:1802.00420, section 3.1; Pintor et al. 2022, arXiv:2106.09947, count the images where it
fails. Ours begins at the image itself: a random start among all images would leave its class without any gradient.
"""

from collections.abc import Iterator

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.check import Finding, Rule, graded, not_run, surely_more
from robustkit.checks.facts import ModelFacts, RunThreat
from robustkit.checks.probing import REFUSED, Wanted

EVERYTHING = RunThreat("Linf", "1")
_SHARE = 0.01

PROBE = AttackProbe(
    dict.fromkeys(("standard", "full"), "pgd:steps=100,random_start=false"), {"standard": 24, "full": 64},
    lambda facts, place: facts.correct, lambda facts: () if facts.rejects else (EVERYTHING,),
)  # fmt: skip


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding about the model."""
    if not facts.deterministic:
        yield Finding("", "not_applicable", "This check is for deterministic models.")
    elif facts.rejects:
        yield Finding("", "not_applicable", "A model that rejects may reject whatever is far from its images.")
    else:
        wanted = PROBE.at(facts, EVERYTHING)
        yield judged(facts, wanted, "Without a bound", "PGD cannot be run on this model.")


def judged(facts: ModelFacts, wanted: Wanted, where: str, refused: str) -> Finding:
    """What it says that so many images stand where everything is allowed.

    Args:
        facts: of the model.
        wanted: the attack and its images.
        where: begins the sentence.
        refused: why there is no answer where the attack could not be run.
    """
    rows = facts.probed(wanted.place, wanted.probe, wanted.images)
    if rows is None:
        return not_run()
    if any(row.value == REFUSED for row in rows):
        return Finding("", "not_applicable", refused)
    left = tuple(row.sample for row in rows if not row.outcome)
    status = graded(failed=surely_more(len(left), len(rows), _chance(facts), fewest=1), warning=bool(left))
    beginning = where[0].lower() + where[1:] if left else where
    text = f"{beginning}, PGD with 100 steps did not break {len(left)} of {len(rows)} images; it should break all."
    usual = f"{beginning}, PGD broke all {len(rows)} images."
    return Finding("", status, text if left else usual, left, {"left": len(left), "images": len(rows)})


def _chance(facts: ModelFacts) -> float:
    """The share of images that may stand where everything is allowed."""
    return max(1 / facts.classes if facts.classes else 0.0, _SHARE)


RULE = Rule(
    name="unbounded",
    title="An attack without a bound breaks every image",
    level="standard",
    severity="invalidating",
    note="an attack without a bound fails",
    remedy="The gradients do not lead to errors: find the layer with robustkit diagnose.",
    judge=judge,
    probes=(PROBE,),
)
