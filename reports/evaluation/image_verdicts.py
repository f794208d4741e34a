"""The verdicts of a board image by image, as arrays in one order for all models.

An image counts as robust at a radius if it is classified correctly and no attack broke it there or at a smaller radius
of the same norm: what lies in the smaller ball lies in the larger one.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..shared.words import printable
from .result_rows import ThreatLabel

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class ModelImages(NamedTuple):
    """The images of one model that have a verdict, by number."""

    sample: Numbers
    label: Numbers
    clean_pred: Numbers

    @property
    def correct(self) -> Flags:
        """Whether each is classified correctly without an attack."""
        return np.equal(self.label, self.clean_pred)


class AttackImages(NamedTuple):
    """What one attack did at one threat."""

    broken: Numbers  # the images that it broke, ascending
    forwards: Numbers  # by row; 0 where it did not attack
    backwards: Numbers


class ImageVerdicts:
    """Rows per image of all models, indexed once: a page looks them up many times.

    Args:
        samples: `Run.samples` of all runs of a board, with the board's model names.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        keys = ["model", "norm", "eps_text"]
        self._rows = {tuple(map(str, key)): rows for key, rows in samples.groupby(keys, sort=False)}
        self._images: dict[str, ModelImages] = {}
        self._robust: dict[tuple[str, ThreatLabel], Flags] = {}
        self._by_attack: dict[tuple[str, ThreatLabel], Mapping[str, AttackImages]] = {}

    def rows(self, model: str, threat: ThreatLabel) -> pd.DataFrame | None:
        """The rows of one model at one threat; None if there are none."""
        return self._rows.get((model, threat.norm, threat.eps_text))

    def images(self, model: str) -> ModelImages:
        """The images of one model."""
        if model not in self._images:
            own = [rows[["sample", "label", "clean_pred"]] for key, rows in self._rows.items() if key[0] == model]
            columns = ModelImages(*(np.empty(0, np.int64) for _ in ModelImages._fields))
            if own:
                table = pd.concat(own).drop_duplicates("sample").sort_values("sample")
                columns = ModelImages(*(table[name].to_numpy(np.int64) for name in ModelImages._fields))
            self._images[model] = columns
        return self._images[model]

    def robust(self, model: str, threat: ThreatLabel) -> Flags:
        """Whether each of the images withstood every attack; in the order of `images`."""
        key = model, threat
        if key not in self._robust:
            images, broken = self.images(model), np.empty(0, np.int64)
            for (name, norm, _), rows in self._rows.items():
                if name == model and norm == threat.norm and float(rows["eps"].iloc[0]) <= threat.eps:
                    broken = np.union1d(broken, rows.loc[rows["verdict"] == "broken", "sample"].to_numpy(np.int64))
            self._robust[key] = images.correct & ~np.isin(images.sample, broken)
        return self._robust[key]

    def broken_anywhere(self, model: str) -> set[int]:
        """The images that some attack broke at some radius."""
        own = [rows for key, rows in self._rows.items() if key[0] == model]
        return set().union(*(rows.loc[rows["verdict"] == "broken", "sample"].tolist() for rows in own))

    def spent(self, model: str, threat: ThreatLabel) -> Mapping[str, int]:
        """For each attack with rows on how many images it spent passes."""
        return {attack: int((own.forwards > 0).sum()) for attack, own in self._attacks(model, threat).items()}

    def most_backwards(self, model: str, threat: ThreatLabel, attack: str) -> int:
        """The most backward passes that an attack spent on one image; 0 without rows."""
        own = self._attacks(model, threat).get(attack)
        return 0 if own is None else int(own.backwards.max(initial=0))

    def broken_by(self, model: str, threat: ThreatLabel) -> Mapping[str, Numbers]:
        """For each attack with rows the images that it broke."""
        return {attack: own.broken for attack, own in self._attacks(model, threat).items()}

    def _attacks(self, model: str, threat: ThreatLabel) -> Mapping[str, AttackImages]:
        """The rows of each attack, looked up once."""
        key = model, threat
        if key not in self._by_attack:
            rows = self.rows(model, threat)
            groups = () if rows is None else rows.groupby("attack", sort=False)
            self._by_attack[key] = {printable(str(attack)): _attack_images(own) for attack, own in groups}
        return self._by_attack[key]


def _attack_images(rows: pd.DataFrame) -> AttackImages:
    broken = np.unique(rows.loc[rows["verdict"] == "broken", "sample"].to_numpy(np.int64))
    return AttackImages(broken, *(rows[name].to_numpy(np.int64, na_value=0) for name in ("forwards", "backwards")))
