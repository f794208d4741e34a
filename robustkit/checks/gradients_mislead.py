"""A sign of masked gradients: they do not predict what happens, or say nothing of values that matter.

An ensemble that measures nearness (`default`) follows the gradient of the nearest class once, from the best point of
each image, to where it predicts most. From the clean image it follows the gradient, too, a tenth of the way and the
whole way, moves the values that have none, and takes a small step in a random direction.

What is seen at an image that falls after all makes no robust accuracy too high. A random step that goes wrong is held
against the backward pass, wherever it was seen.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from robustkit.checks.black_box_wins import MASKED
from robustkit.checks.check import Finding, Rule, Status
from robustkit.checks.facts import ModelFacts, NearRow, RunThreat, plain_norm
from robustkit.primitives.mask import unmasked
from robustkit.primitives.trust import CleanGradient, Doubt, RandomStep, doubt, together, wrong_together

_WORDS: dict[Doubt, str] = {
    "hides": "values at which the gradient is exactly zero move the logits",
    "turns": "a short step does not change the logits as the gradient says",
    "misdirects": "following the gradient from the clean image raises the lead of the true class",
    "errs": "a small step in a random direction does not change the logits as the gradient says",
    "misses": "the gradient predicts nothing, or less than a quarter of the change when it is followed",
}
# How many times what a gradient predicts may be gained: where little is left to gain, honest networks bend as much. In
# L1 a single value moves as far as the whole radius.
_MISSED, _MISSED_IN_L1 = 4.0, 8.0
_MOST = 0.05  # share of images; one in a hundred can be a flat spot of an honest network


class FollowedGradients(NamedTuple):
    """Images whose gradients were followed at one threat."""

    images: int
    misled: tuple[int, ...]  # those whose gradient is not to be believed
    why: tuple[Doubt, ...]  # what was seen there, the most frequent first
    lost: int  # random steps that said nothing
    together: RandomStep  # all of them
    standing: int  # images that no attack broke
    blamed: int  # misled images that stand, or whose random step went wrong

    @property
    def masked(self) -> bool:
        """Whether no honest network has this, and robust accuracy may be too high by more than a few images."""
        return self.many(self.standing) and (self.many(self.blamed) or wrong_together(self.together))

    def many(self, count: int) -> bool:
        """Whether so many of the images are more than a few."""
        return count > max(1, _MOST * self.images)


def followed(facts: ModelFacts) -> dict[RunThreat, FollowedGradients]:
    """The counts of a model by threat; of each image the first measurement."""
    order = {str(entry["name"]): number for number, entry in enumerate(facts.attacks)}
    first: dict[RunThreat, dict[int, NearRow]] = {}
    for row in sorted(facts.nearness, key=lambda each: order.get(each.attack, len(order))):
        first.setdefault(RunThreat(row.norm, row.eps_text), {}).setdefault(row.sample, row)
    return {place: _counts(rows.values(), facts.survivors(place)) for place, rows in first.items()}


def _counts(rows: Iterable[NearRow], survivors: Container[int]) -> FollowedGradients:
    given = list(rows)
    why = {row.sample: seen for row in given if (seen := _doubt(row)) is not None}
    erring = [sample for sample, seen in why.items() if seen == "errs"]
    steps = [step for row in given if (step := _random_step(row)) is not None]
    # Where most surprises are crooked, logits are rounded, or the step crosses many kinks. One image says nothing.
    if len(erring) <= max(1, sum(step.crooked for step in steps)):
        why = {sample: seen for sample, seen in why.items() if seen != "errs"}
    reasons = tuple(each for each, _ in Counter(why.values()).most_common())
    return FollowedGradients(
        len(given), tuple(sorted(why)), reasons, sum(step.lost for step in steps), together(steps),
        sum(row.sample in survivors for row in given),
        sum(seen == "errs" or sample in survivors for sample, seen in why.items()),
    )  # fmt: skip


def _doubt(row: NearRow) -> Doubt | None:
    clean = CleanGradient(row.clean_step, row.clean_way, row.clean_unseen, _random_step(row))
    missed = _MISSED_IN_L1 if unmasked(row.norm) == "L1" else _MISSED
    return doubt(row.predicted, row.obtained, row.unseen, clean, missed)


def _random_step(row: NearRow) -> RandomStep | None:
    # Below zero stands for a step that was not taken.
    return None if row.random_error < 0 else RandomStep(row.random_error, row.random_bend)


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat at which gradients were followed."""
    measured = followed(facts)
    # At radius 0 there is nothing to predict.
    here = [place for place in facts.radii if place in measured and place.eps > 0]
    if not here:
        yield Finding("", "not_applicable", "No attack measured what gradients predict; the ensemble default does.")
    for place in here:
        counts = measured[place]
        misled = len(counts.misled)
        numbers = {"images": counts.images, "misled": misled, "share": misled / counts.images}
        alarm: Status = "failed" if plain_norm(place) == place.norm else "warning"
        few = " With few pixels free, honest networks have such images, too." if alarm == "warning" else ""
        text = _text(counts) + (few + _replaced(facts)) * counts.masked
        yield Finding(place.text, alarm if counts.masked else "ok", text, counts.misled, numbers)


def _replaced(facts: ModelFacts) -> str:
    """The hint for a model whose gradient is that of a replacement function already."""
    if facts.straight_through:
        return " The attacks follow gradients straight through steps and lookups, which predict less."
    if not facts.replaced:
        return ""
    named = ", ".join(f"'{layer}'" for layer in facts.replaced)
    return (
        f" The gradient of {named} is that of --bpda: a function that is nearer to the layer may show more (--bpda "
        "LAYER=file.py:function)."
    )


def _text(counts: FollowedGradients) -> str:
    what = ", or ".join(_WORDS[each] for each in counts.why or ("misses",))
    text = f"on {len(counts.misled)} of {counts.images} images that the first steps did not break, {what}."
    if counts.masked:
        if wrong_together(counts.together):
            text += (
                " Taken together, small steps in random directions do not change the logits as gradients say, by "
                f"{100 * counts.together.error:.0f} % of the usual change."
            )
        attacked = (
            "Every member of the ensemble attacked these images, but the" if counts.many(counts.blamed) else "The"
        )
        text += f" {attacked} model's gradients are probably masked, and then the reported robust accuracy is too high."
    elif counts.many(len(counts.misled)):
        text += " Nearly all of these were broken all the same, so it hardly makes robust accuracy too high."
    elif 2 * counts.lost > counts.images:
        text += f" Small random steps, which show whether gradients leave something out, said nothing on {counts.lost}."
    return text


RULE = Rule(
    name="gradients_mislead",
    title="Gradients predict what happens where one follows them",
    level="quick",
    severity="invalidating",
    note=MASKED,
    remedy="Find the layer with robustkit diagnose.",
    judge=judge,
    worst_of=lambda finding: finding.numbers["share"],
)
