"""Models that do no better than guessing on clean images: mostly networks whose weights were never loaded.

Whether a function of the user loaded weights cannot be known. That the accuracy on clean images cannot be told from
chance is measured.
"""

from robustkit.statistics.intervals import proportion

NOTE = "no better than guessing"


def guessing(model: str, correct: int, n: int, classes: int) -> str | None:
    """A warning if the interval of the clean accuracy reaches down to 1 / classes; None if every image is right."""
    share = proportion(correct, n)
    if classes < 2 or correct == n or share.low > 1 / classes:
        return None
    return (
        f"{model} classifies {correct} of {n} clean images correctly (95 % interval {100 * share.low:.1f}-"
        f"{100 * share.high:.1f} %), which cannot be told from guessing among {classes} classes: check that its "
        "weights are loaded, and that the labels are in its order."
    )
