"""Models whose accuracy on clean images is not above chance: mostly networks whose weights were never loaded.

Whether a function of the user loaded weights cannot be known. That the accuracy on clean images cannot be told from
chance is measured.
"""

from collections.abc import Iterator

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts
from robustkit.statistics.intervals import proportion

NOTE = "clean accuracy is not above chance"
REMEDY = (
    "Check that its normalisation is given (--mean, --std; --checks standard tries some), that its weights are loaded "
    "(--weights FILE), and that the labels are in its order."
)


def guessing(correct: int, n: int, classes: int) -> str | None:
    """What to say if the interval of the clean accuracy reaches down to 1 / classes; None otherwise.

    None too if every image is right.
    """
    share = proportion(correct, n)
    if classes < 2 or correct == n or share.low > 1 / classes:
        return None
    return (
        f"the model classifies {correct} of {n} clean images correctly (95 % interval {100 * share.low:.1f}-"
        f"{100 * share.high:.1f} %), which is not significantly above chance ({100 / classes:.1f} %)."
    )


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding, about the clean images."""
    right, n = len(facts.correct), facts.n
    numbers = {"correct": right, "n": n}
    if facts.classes < 2 or not n:
        yield Finding("", "not_applicable", "The number of classes is not known." if n else "There are no images yet.")
        return
    sentence = guessing(right, n, facts.classes)
    usual = f"{right} of {n} clean images are classified correctly; chance is one in {facts.classes}."
    yield Finding("", "ok" if sentence is None else "failed", sentence or usual, (), numbers)


RULE = Rule(
    name="clean_accuracy",
    title="Clean accuracy is above chance",
    level="quick",
    severity="invalidating",
    note=NOTE,
    remedy=REMEDY,
    judge=judge,
)
