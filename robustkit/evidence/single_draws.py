"""What a randomized model adds to a run's tables: how often a single one of its answers is right.

The other columns are about the class that it answers most often, as a test on many draws has shown it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from typing_extensions import Self

from robustkit.evidence.carried import Origins
from robustkit.evidence.parts import Part
from robustkit.evidence.rows import DrawRecord
from robustkit.statistics.single_draw import FreshDraws, single_draw, worst_point

DRAW_COLUMN: Final = "draw_accuracy"
RESULT_EXTRAS: Final = (DRAW_COLUMN, "draw_ci_low", "draw_ci_high")

Rows = list[dict[str, Any]]
Points = Mapping[int, DrawRecord]  # by image


class SingleDraws(NamedTuple):
    """Single answers of one randomized model."""

    clean: dict[int, DrawRecord]  # by image
    attacked: dict[tuple[str, str, str], dict[int, DrawRecord]]  # by norm, eps_text and attack, then by image

    @property
    def clean_forwards(self) -> int:
        """Passes spent on clean images."""
        return sum(record.forwards for record in self.clean.values())

    def carried(self, places: Origins) -> Self:
        """The draws that count, as `carried_columns` has it."""
        attacked = {
            (norm, eps_text, name): {
                image: self.attacked[norm, radius, name][image]
                for radius, images in radii.items()
                for image in images.tolist()
                if image in self.attacked.get((norm, radius, name), {})
            }
            for (norm, eps_text, name), radii in places.items()
        }
        return self._replace(attacked=attacked)

    def under(self, norm: str, eps_text: str, names: Sequence[str]) -> list[Points]:
        """The points of attacks at one threat."""
        return [self.attacked.get((norm, eps_text, name), {}) for name in names]

    def of(self, number: int, attacked: Sequence[Points]) -> list[FreshDraws]:
        """The points of one image; the clean image where it was not attacked."""
        return [_fresh(points[number]) for points in attacked if number in points] or [_fresh(self.clean[number])]


def single_draws(records: Iterable[DrawRecord]) -> SingleDraws:
    """The records of one model, by what they are about."""
    found = SingleDraws({}, {})
    for record in records:
        key = record.norm, record.eps_text, record.attack
        place = found.clean if record.norm == "-" else found.attacked.setdefault(key, {})
        place[record.sample] = record
    return found


def clean_extras(draws: SingleDraws) -> dict[str, Any]:
    """The further columns of the clean row."""
    return _extras(draws, [])


def threat_extras(draws: SingleDraws, rows: Rows, groups: Mapping[str, Sequence[str]], *threat: str) -> Rows:
    """The result rows of one threat with their further columns; a member of an ensemble has none.

    An image that was not attacked counts with its clean answers, and an image with several points with its worst one.
    """
    return [{**row, **_threat_extras(draws, row, groups, *threat)} for row in rows]


def union_extras(
    draws: SingleDraws, groups: Mapping[str, Sequence[str]], threats: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """The further columns of the row about all threats: of each image its worst point under any of them."""
    names = [name for members in groups.values() for name in members]
    points = [each for norm, eps_text in threats for each in draws.under(norm, eps_text, names)]
    return _extras(draws, [*points, draws.clean])


def sample_extras(
    draws: SingleDraws, parts: Sequence[Part], groups: Mapping[str, Sequence[str]], norm: str, eps_text: str
) -> list[Part]:
    """The samples of one threat with their further column."""
    extended = []
    for part in parts:
        points = draws.under(norm, eps_text, groups.get(part["attack"], [part["attack"]]))
        shares = [_share(worst_point(draws.of(number, points))) for number in part["sample"].tolist()]
        extended.append({**part, DRAW_COLUMN: np.array(shares)})
    return extended


def _threat_extras(
    draws: SingleDraws, row: Mapping[str, Any], groups: Mapping[str, Sequence[str]], norm: str, eps_text: str
) -> dict[str, Any]:
    if row["role"] in ("attack", "ensemble"):
        return _extras(draws, draws.under(norm, eps_text, groups[row["attack"]]))
    if row["role"] != "worst-case":
        return {}
    names = [name for members in groups.values() for name in members]
    return _extras(draws, [*draws.under(norm, eps_text, names), draws.clean])


def _extras(draws: SingleDraws, attacked: Sequence[Points]) -> dict[str, Any]:
    share = single_draw(draws.of(number, attacked) for number in draws.clean)
    return dict(zip(RESULT_EXTRAS, (share.value, share.low, share.high), strict=True))


def _share(point: FreshDraws) -> float:
    return point.estimation / point.draws


def _fresh(record: DrawRecord) -> FreshDraws:
    return FreshDraws(record.draws, record.selection, record.estimation)
