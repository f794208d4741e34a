"""A sign of masked gradients: they predict less than half of what happens where one follows them.

An ensemble that measures nearness (`rk-3`) follows the gradient of the nearest class once, from the best point of each
image, to where it predicts most.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from robustkit.evidence.store import NearnessRecord
from robustkit.evidence.worst_threat import worst_threat
from robustkit.primitives.reach import believable

_MOST = 0.05  # share of images; one in a hundred can be a flat spot of an honest network


class FollowedGradients(NamedTuple):
    """Images whose gradients were followed at one threat."""

    images: int
    misled: int  # whose gradient predicted nothing, or less than half of what happened

    @property
    def masked(self) -> bool:
        """Whether it happens too often for an honest network."""
        return self.misled > max(1, _MOST * self.images)


def followed(
    records: Iterable[NearnessRecord], threats: Sequence[Sequence[str]], attacks: Sequence[str]
) -> dict[str, FollowedGradients]:
    """The counts of one model by "Linf 0.1"; of each image the first measurement.

    Args:
        records: of the model.
        threats: norms and radii.
        attacks: names, in the order in which they are run.
    """
    place = {name: number for number, name in enumerate(attacks)}
    first: dict[str, dict[int, NearnessRecord]] = {f"{norm} {eps_text}": {} for norm, eps_text in threats}
    for row in sorted(records, key=lambda each: place.get(each.attack, len(place))):
        first.get(f"{row.norm} {row.eps_text}", {}).setdefault(row.sample, row)
    return {
        threat: FollowedGradients(len(rows), sum(not believable(row.predicted, row.obtained) for row in rows.values()))
        for threat, rows in first.items()
    }


def warning(model: str, threats: dict[str, FollowedGradients]) -> str | None:
    """A sentence about the threat where gradients mislead most; None where they are honest."""
    threat = worst_threat({threat: each.misled / each.images for threat, each in threats.items() if each.masked})
    if threat is None:
        return None
    counts = threats[threat]
    return (
        f"{model} at {threat}: on {counts.misled} of {counts.images} images that the first steps left, the gradient "
        "predicts nothing, or less than half of what happens where one follows it. They got the whole budget, but its "
        "gradients are probably masked, and its robust accuracy is too high; find the layer with robustkit diagnose."
    )
