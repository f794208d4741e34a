"""How many images a run with `precision` works on: as many as make the interval of every headline narrow enough.

The images are taken in the run's own order, a fixed pseudo-random one. After a number of images that follows from the
verdicts so far, the intervals are looked at; they are confidence sequences, so looking does no harm. Every look depends
on finished verdicts alone: a run that was killed looks at the same places again, and stops at the same image.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

import numpy as np

from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.runner import ModelRun
from robustkit.host.progress import ProgressWatch
from robustkit.statistics.confidence_sequence import half_width, images_needed, sequence

_GROWTH: Final = 1.05  # at least, from one look to the next: each opens the models again


def looks(evaluation: Evaluation, stored: int, runs: list[ModelRun], watch: ProgressWatch) -> Iterator[Evaluation]:
    """The evaluation of more and more images; without a precision only the whole.

    Args:
        evaluation: of the most images that may be taken.
        stored: images of the evidence so far; the last part has no fewer.
        runs: after each part, all models of that part, finished.
        watch: is told why there are more images.
    """
    if evaluation.precision is None:
        yield evaluation
        return
    most, population = len(evaluation.ids), len(evaluation.data)
    n = fewest_images(evaluation.precision, population, most)
    while True:
        yield replace(evaluation, ids=evaluation.ids[:n])
        if n == most:
            return
        standing = headline_counts(runs)
        widest = max(half_width(sequence(k, n, population)) for k in standing)
        if widest <= evaluation.precision:
            break
        needed = max(images_needed(k / n, evaluation.precision, population, seen=n) for k in standing)
        n, before = min(max(needed, math.ceil(_GROWTH * n)), most), n
        watch.say(f"After {before} images the widest interval is +-{100 * widest:.2f} points; going on to {n}.")
    if n < stored:
        yield replace(evaluation, ids=evaluation.ids[: min(stored, most)])


def fewest_images(precision: float | None, population: int, most: int) -> int:
    """After how many images a run may stop at the earliest; `most` without a precision."""
    return most if precision is None else min(images_needed(0.0, precision, population), most)


def headline_counts(runs: Sequence[ModelRun]) -> list[int]:
    """How many images stand at each norm and radius, and under all of them at once, for every model."""
    counts = []
    for run in runs:
        attacks = [each for each in run.evaluation.plan.attacks if math.isfinite(each.threat.eps)]
        standing = [run.ledger.survivors(attack) for attack in {each.threat: each for each in attacks}.values()]
        counts += [len(images) for images in standing]
        counts += [len(reduce(np.intersect1d, standing))] if standing else []
    return counts
