"""A sign of masked gradients: they do not predict what happens, or say nothing of values that matter.

An ensemble that measures nearness (`default`) follows the gradient of the nearest class once, from the best point of
each image, to where it predicts most. From the clean image it follows the gradient, too, a tenth of the way and the
whole way, moves the values that have none, and takes a small step in a random direction.

What is seen at an image that falls after all makes no robust accuracy too high. A random step that goes wrong is held
against the backward pass, wherever it was seen.
"""

import math
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

import torch

from robustkit.checks.black_box_wins import MASKED, broken_images, gradient_attacks
from robustkit.checks.check import Finding, Rule, Status, not_run, surely_more
from robustkit.checks.facts import ModelFacts, NearRow, RunThreat
from robustkit.checks.gradient_sample import PROBE, SampledGradients, reasons, without_crooked
from robustkit.checks.probing import REFUSED, Wanted
from robustkit.checks.survivors import at_least, points_too_high
from robustkit.classifier.logit_sizes import units
from robustkit.primitives.mask import unmasked
from robustkit.primitives.trust import CleanGradient, Doubt, RandomStep, doubt, together, wrong_together

_WORDS: dict[Doubt, str] = {
    "hides": "values at which the gradient is exactly zero move the logits",
    "turns": "a short step does not change the logits as the gradient says",
    "misdirects": "following the gradient from the clean image raises the margin of the true class",
    "errs": "a small step in a random direction does not change the logits as the gradient says",
    "misses": (
        "the gradient predicts nothing, or less than a quarter (in L1 an eighth) of the change that following it causes"
    ),
}
# How many times what a gradient predicts may be gained: where little is left to gain, honest networks bend as much. In
# L1 a single value moves as far as the whole radius.
_MISSED, _MISSED_IN_L1 = 4.0, 8.0
_MOST = 0.05  # share of images; one in forty can be a flat spot of an honest network
# Smaller radii, and pixels under a mask, may change the logits of an ordinary network too little to test its gradients.
_LEAST_RADIUS = {"Linf": 0.001, "L2": 0.01, "L1": 0.1}
_TOO_HIGH = "model's gradients are probably masked, and then the reported robust accuracy is too high."
_ONE_DRAW = ", with the same random draw in every query"


class FollowedGradients(NamedTuple):
    """Images whose gradients were followed at one threat."""

    images: int
    misled: tuple[int, ...]  # those whose gradient is not to be believed
    why: tuple[Doubt, ...]  # what was seen there, the most frequent first
    lost: int  # random steps that said nothing
    together: RandomStep  # all of them
    standing: int  # images that no attack broke
    blamed: int  # misled images that stand, or whose random step went wrong
    untested: tuple[int, ...]  # images that stand, and whose gradient predicts too little for any test

    @property
    def masked(self) -> bool:
        """Whether no honest network has this, and robust accuracy may be too high by more than a few images."""
        return self.many(self.standing) and (
            (self.doubted and self.many(self.blamed)) or wrong_together(self.together) or self.many(len(self.untested))
        )

    @property
    def doubted(self) -> bool:
        """Whether gradients mislead on more than one image in twenty, with a confidence of 95 %."""
        return surely_more(len(self.misled), self.images, _MOST)

    def many(self, count: int) -> bool:
        """Whether so many of the images are more than a few."""
        return count > max(1, _MOST * self.images)


def followed(facts: ModelFacts) -> dict[RunThreat, FollowedGradients]:
    """The counts of a model by threat; of each image the first measurement."""
    order = {str(entry["name"]): number for number, entry in enumerate(facts.attacks)}
    first: dict[RunThreat, dict[int, NearRow]] = {}
    for row in sorted(facts.nearness, key=lambda each: order.get(each.attack, len(order))):
        first.setdefault(RunThreat(row.norm, row.eps_text), {}).setdefault(row.sample, row)
    rounded = _rounded_to_16_bits(facts)
    return {
        place: _counts(
            rows.values(),
            facts.survivors(place),
            testable=not rounded and place.eps >= _LEAST_RADIUS.get(place.norm, math.inf),
        )
        for place, rows in first.items()
    }


def _rounded_to_16_bits(facts: ModelFacts) -> bool:
    """Whether all stored answers are numbers of 16 bits, which hide the small changes of an ordinary network."""
    answers = [torch.from_numpy(logits.copy()) for logits in facts.logits]
    return bool(answers) and all(unit > 0 for logits in answers for unit in units(logits))


def _counts(rows: Iterable[NearRow], survivors: Container[int], *, testable: bool) -> FollowedGradients:
    given = list(rows)
    why = {row.sample: seen for row in given if (seen := _doubt(row)) is not None}
    steps = [step for row in given if (step := _random_step(row)) is not None]
    why = without_crooked(why, sum(step.crooked for step in steps))
    return FollowedGradients(
        len(given), tuple(sorted(why)), reasons(why), sum(step.lost for step in steps), together(steps),
        sum(row.sample in survivors for row in given),
        sum(seen == "errs" or sample in survivors for sample, seen in why.items()),
        tuple(sorted(row.sample for row in given if testable and _untested(row) and row.sample in survivors)),
    )  # fmt: skip


def _either(seen: Iterable[Doubt]) -> str:
    return ", or ".join(_WORDS[each] for each in seen)


def _doubt(row: NearRow) -> Doubt | None:
    clean = CleanGradient(row.clean_step, row.clean_way, row.clean_unseen, _random_step(row))
    missed = _MISSED_IN_L1 if unmasked(row.norm) == "L1" else _MISSED
    return doubt(row.predicted, row.obtained, row.unseen, clean, missed)


def _untested(row: NearRow) -> bool:
    """Whether neither a step along the gradient nor a random one changes the logits enough to say anything."""
    step = _random_step(row)
    # Exactly 1 stands for a prediction below a ten-thousandth of the logits.
    return step is not None and step.lost and row.clean_step == row.clean_way == 1 and row.clean_unseen == 0


def _random_step(row: NearRow) -> RandomStep | None:
    # Below zero stands for a step that was not taken.
    return None if row.random_error < 0 else RandomStep(row.random_error, row.random_bend)


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat at which gradients were followed."""
    measured, sampled = followed(facts), {each.place: each for each in PROBE.wanted(facts)}
    # At radius 0 there is nothing to predict.
    here = [place for place in facts.radii if (place in measured or place in sampled) and place.eps > 0]
    if not here:
        yield Finding("", "not_applicable", "No attack measured what gradients predict; the ensemble default does.")
    for place in here:
        if place in sampled:
            yield _sampled(facts, sampled[place])
            continue
        counts = measured[place]
        misled = len(counts.misled)
        numbers = {"images": counts.images, "misled": misled, "share": misled / counts.images}
        alarm: Status = "failed" if unmasked(place.norm) == place.norm else "warning"
        few = (
            " Under a mask with few pixels, this also happens on networks without masked gradients."
            if alarm == "warning"
            else ""
        )
        text = _text(counts) + (few + _replaced(facts, place)) * counts.masked
        images = tuple(sorted({*counts.misled, *counts.untested})) if counts.masked else counts.misled
        yield Finding(place.text, alarm if counts.masked else "ok", text, images, numbers)


def _sampled(facts: ModelFacts, wanted: Wanted) -> Finding:
    """The finding where no attack of the run measured gradients, but some survivors were looked at."""
    rows = facts.probed(wanted.place, wanted.probe, wanted.images)
    if rows is None:
        return not_run(wanted.place.text)
    if any(row.value == REFUSED for row in rows):
        why = "Its randomness cannot be fixed, or no gradient" if facts.randomized else "No gradient"
        return Finding(wanted.place.text, "not_applicable", f"{why} reaches the image.")
    seen = SampledGradients.of(rows)
    misled, broken, images = len(seen.misled), len(seen.broken), max(len(rows), 1)
    masked = surely_more(misled, images, _MOST)
    points, grade = points_too_high(facts, wanted.place, broken, images)
    weak = grade == "failed"
    looked_at = f"of {len(rows)} survivors that were looked at{_ONE_DRAW * facts.randomized},"
    sentences = []
    if masked or not weak:
        what = _either(seen.why or ("turns",)).replace(_WORDS["misses"], "the gradient predicts nothing")
        sentences.append(f"on {misled} {looked_at} {what}.")
    if masked:
        sentences.append(f"The {_TOO_HIGH}")
    if weak:
        sentences.append(
            f"{'On' if masked else 'on'} {seen.rough} {looked_at} the gradient is right only very near the image, and "
            f"APGD with 40 steps broke {broken} of them, so {at_least(points)}. Attack with --attack default."
        )
    numbers = {"images": len(rows), "misled": misled, "share": misled / images, "rough": seen.rough, "broken": broken}
    return Finding(
        wanted.place.text, "failed" if masked or weak else "ok", " ".join(sentences),
        tuple(sorted({*seen.misled, *seen.broken})), numbers,
    )  # fmt: skip


def _replaced(facts: ModelFacts, place: RunThreat) -> str:
    """What is known of a model whose gradient is that of a replacement function already."""
    if not (facts.straight_through or facts.replaced):
        return ""
    hint = ""
    if facts.replaced:
        named = ", ".join(f"'{layer}'" for layer in facts.replaced)
        hint = (
            f" The gradient of {named} is that of --bpda: a function that is nearer to the layer may show more (--bpda "
            "LAYER=file.py:function)."
        )
    option = "--bpda" if facts.replaced else "--straight-through"
    return f" Gradients of {option} are no derivatives and predict less.{hint}{_compared(facts, place)}"


def _compared(facts: ModelFacts, place: RunThreat) -> str:
    """What attacks without gradients broke of the rest, if they attacked all of it.

    Equal results prove nothing: where a backward pass reverses a fifth of the gradient, 57 % of the images survive
    gradients and Square, and 38 % AutoAttack.
    """
    found = broken_images(facts.searching_under(place), gradient_attacks(facts.attacked))
    if not found.left or found.tried < found.left:
        return ""
    return (
        f" Attacks with them broke {found.by_gradients} images, and attacks without gradients "
        f"{found.without_gradients} of the {found.left} that they left."
    )


def _text(counts: FollowedGradients) -> str:
    what, untested = _either(counts.why or ("misses",)), counts.many(len(counts.untested))
    sentences = []
    if counts.misled or not untested:
        images = f"{len(counts.misled)} of {counts.images} images that the first steps did not break"
        sentences.append(f"on {images}, {what}.")
    if counts.masked:
        if wrong_together(counts.together):
            sentences.append(
                "Over all images together, the change of the logits along small random steps differs from what the "
                f"gradients predict by {100 * counts.together.error:.0f} % of its usual size."
            )
        if untested:
            sentences.append(
                f"{'On' if sentences else 'on'} {len(counts.untested)} images that no attack broke, the gradient "
                "predicts changes below 0.01 % of the logits, too small to test it. Either a function saturates (let "
                "the model return what goes into it), or the logits are large compared with their differences."
            )
        attacked = (
            "Every member of the ensemble attacked these images, but the"
            if counts.many(counts.blamed) and not untested
            else "The"
        )
        sentences.append(f"{attacked} {_TOO_HIGH}")
    elif counts.misled and not counts.doubted:
        sentences.append("On so few images, this also happens on networks without masked gradients.")
    elif counts.misled:
        sentences.append("Attacks broke nearly all of these images, so robust accuracy is hardly too high.")
    elif 2 * counts.lost > counts.images:
        sentences.append(f"On {counts.lost} images the small random steps were too small to test the gradient.")
    return " ".join(sentences)


RULE = Rule(
    name="gradients_mislead",
    title="Following the gradient changes the logits as it predicts",
    level="quick",
    severity="invalidating",
    note=MASKED,
    remedy="Find the layer with robustkit diagnose.",
    judge=judge,
    probes=(PROBE,),
    worst_of=lambda finding: finding.numbers["share"],
)
