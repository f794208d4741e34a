"""Whether stored adversarial examples survive an image file, which has 256 levels: rounded, and queried again.

Each value is rounded towards the clean image, so the rounded point stays in the ball. It says what an attacker loses
who must hand in a file, and nothing about whether the result is right.
"""

from collections.abc import Iterator

import numpy as np

from robustkit.checks.check import Finding, Rule, not_run
from robustkit.checks.facts import ModelFacts, StoredWitness
from robustkit.checks.stored_examples import StoredExamplesProbe
from robustkit.statistics.intervals import proportion

_LEVELS = 255
_OFF = 1e-3  # levels
_HALF = 0.5


def probe_name(attack: str) -> str:
    """What rows say of the examples of an attack."""
    return f"8 bits after {attack}"


def rounded(witness: StoredWitness) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """`[C, H, W]` the adversarial example on the 256 levels, each value rounded towards the clean image."""
    clean = np.rint(witness.x.astype(np.float64) * _LEVELS)
    change = np.trunc(witness.x_adv.astype(np.float64) * _LEVELS - clean + np.sign(witness.x_adv - witness.x) * _OFF)
    result: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = ((clean + change) / _LEVELS).astype(np.float32)
    return result


def _witnesses(facts: ModelFacts) -> list[StoredWitness]:
    """Those of the model that are misclassified, of images with 256 levels."""
    return [
        each for each in facts.witnesses
        if each.model == facts.model and each.broken
        and bool((np.abs(each.x * _LEVELS - np.rint(each.x * _LEVELS)) < _OFF).all())
    ]  # fmt: skip


PROBE = StoredExamplesProbe(_witnesses, lambda each: probe_name(each.attack), rounded)


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat with stored adversarial examples."""
    found = list(PROBE.tried(facts))
    if not found:
        yield Finding("", "not_applicable", "No adversarial example of an 8-bit image is stored.")
    for place, examples in found:
        if examples is None:
            yield not_run(place.text)
            continue
        survive, known = len(examples.wrong), len(examples.tried)
        high = proportion(survive, known).high
        text = f"{survive} of {known} stored adversarial examples are still misclassified after rounding to 8 bits."
        lost = tuple(sorted(examples.tried - examples.wrong))
        numbers = {"survive": survive, "examples": known}
        yield Finding(place.text, "warning" if high < _HALF else "ok", text, lost, numbers)


RULE = Rule(
    name="eight_bits",
    title="Adversarial examples survive rounding to 8 bits",
    level="standard",
    severity="minor",
    note="adversarial examples are lost in 8 bits",
    remedy="To write adversarial images as files, use robustkit attack, which searches among the 256 levels.",
    judge=judge,
    probes=(PROBE,),
)
