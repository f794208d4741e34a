"""What a further search on random survivors says about the headline: how many points it may be too high.

Survivors are images that no attack of the run broke. Of those that are drawn, a share is broken; the lower end of its
interval, times the share of survivors, is a bound on how far robust accuracy is too high.
"""

from collections.abc import Callable, Iterator, Sequence

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.check import Finding, Status, graded, not_run
from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat
from robustkit.checks.image_set import ImageSet
from robustkit.checks.probing import REFUSED
from robustkit.statistics.intervals import proportion

_NOTED, _WRONG = 0.005, 0.02  # of all images: from there on a warning, and not reliable
_FEWEST = 2

SEARCHED = "This check is for deterministic models under Linf, L2 and L1 with a radius and without a mask."


def survivors(facts: ModelFacts, place: RunThreat) -> ImageSet:
    """The images that a further search is run on."""
    return facts.survivors(place)


def why_no_gradients(facts: ModelFacts) -> str:
    """Why no gradient of a model was asked for."""
    return "The model gives no gradients." if facts.answers_only else SEARCHED


def searchable(facts: ModelFacts) -> tuple[RunThreat, ...]:
    """The threats at which one is run."""
    return () if facts.transferred else facts.searchable


def judge_survivors(probes: Sequence[AttackProbe], what: str) -> Callable[[ModelFacts], Iterator[Finding]]:
    """A rule's judge: what these attacks break together of the survivors that were drawn.

    Args:
        probes: all on the same images.
        what: names them in a sentence.
    """

    def judge(facts: ModelFacts) -> Iterator[Finding]:
        applied = [probe for probe in probes if probe.applies(facts)]
        places = searchable(facts) if applied else ()
        if not places:
            yield Finding("", "not_applicable", SEARCHED)
        for place in places:
            wanted = [probe.at(facts, place) for probe in applied]
            rows = [facts.probed(place, each.probe, each.images) for each in wanted]
            done = [each for each in rows if each is not None]
            if len(done) < len(rows):
                yield not_run(place.text)
            else:
                yield _finding(facts, place, [row for each in done for row in each], len(wanted[0].images), what)

    return judge


def points_too_high(facts: ModelFacts, place: RunThreat, broken: int, drawn: int) -> tuple[float, Status]:
    """How far the headline is too high at least, as a share of all images, and how much that matters.

    Args:
        facts: of the model.
        place: the threat.
        broken: of the survivors that were drawn.
        drawn: how many they are.
    """
    points = proportion(broken, drawn).low * len(facts.survivors(place)) / max(facts.n, 1)
    many = broken >= _FEWEST
    return points, graded(failed=many and points > _WRONG, warning=many and points > _NOTED)


def at_least(points: float) -> str:
    """A part of a sentence for a share of all images."""
    return f"the reported robust accuracy is probably at least {100 * points:.1f} points too high (95 % interval)"


def _finding(facts: ModelFacts, place: RunThreat, rows: Sequence[ProbeRecord], drawn: int, what: str) -> Finding:
    if any(row.value == REFUSED for row in rows):
        return Finding(place.text, "not_applicable", "The attack cannot be run on this model.")
    broken = sorted({row.sample for row in rows if row.outcome})
    standing = len(facts.survivors(place))
    if not drawn:
        return Finding(place.text, "ok", "No image is left to attack.", (), {"broken": 0, "drawn": 0})
    points, status = points_too_high(facts, place, len(broken), drawn)
    text = f"{what} broke {len(broken)} of {drawn} random survivors."
    if status != "ok":
        text = f"{text[:-1]}, so {at_least(points)}."
    numbers = {"broken": len(broken), "drawn": drawn, "survivors": standing, "points": points}
    return Finding(place.text, status, text, tuple(broken), numbers)
