"""A rule's judge: on which share of the images, at each threat, a probe found what it looks for."""

from collections.abc import Callable, Iterator

from robustkit.checks.check import Finding, Status, graded_share, not_run
from robustkit.checks.facts import ModelFacts
from robustkit.checks.probing import REFUSED, CheckProbe
from robustkit.checks.survivors import why_no_gradients

# Lower end of the share of images. One in twenty can be a flat or a bent spot of an honest network.
_NOTED, _WRONG = 0.05, 0.2


def judge_share(
    probe: CheckProbe, what: str, refused: str, when_refused: Status = "not_applicable"
) -> Callable[[ModelFacts], Iterator[Finding]]:
    """The judge of a probe whose outcome is 1 on images that show the fault.

    Args:
        probe: of the rule.
        what: is the matter with such an image; the rest of the sentence "on 3 of 32 images ...".
        refused: why there is no answer where the probe could not be run.
        when_refused: the status of that.
    """

    def judge(facts: ModelFacts) -> Iterator[Finding]:
        wanted = list(probe.wanted(facts))
        if not wanted:
            yield Finding("", "not_applicable", why_no_gradients(facts))
        for each in wanted:
            rows = facts.probed(each.place, each.probe, each.images)
            if rows is None:
                yield not_run(each.place.text)
                continue
            if any(row.value == REFUSED for row in rows):
                yield Finding(each.place.text, when_refused, refused)
                continue
            found = tuple(row.sample for row in rows if row.outcome)
            status = graded_share(len(found), len(rows), noted=_NOTED, wrong=_WRONG)
            text = f"on {len(found)} of {len(rows)} images {what}."
            yield Finding(each.place.text, status, text, found, {"found": len(found), "images": len(rows)})

    return judge
