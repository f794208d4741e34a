"""`Run.samples` is made of parts, one for each attack at one threat, so that no row is an object of its own."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# By column its values, [n], or the one value of all rows. `column` gives them as one array.
Part = dict[str, Any]

IMAGE: Final = ("sample", "label", "clean_pred")  # columns about the image alone
WHOLE: Final = ("adv_pred", "queries_to_break", "restart", "target", "l0", "forwards", "backwards", "queries")


class Gaps(NamedTuple):
    """Values of some rows; in the others they are missing."""

    values: NDArray[Any]  # of the rows that have one
    known: NDArray[np.bool_]  # [n]

    def filled(self) -> NDArray[np.float64]:
        """[n], NaN where missing."""
        values = np.full(len(self.known), math.nan)
        values[self.known] = self.values
        return values


class Words(NamedTuple):
    """Texts of which there are a few different ones."""

    codes: NDArray[np.int8]  # [n] numbers of texts
    texts: tuple[str, ...]

    def spelled(self) -> NDArray[Any]:
        """[n] texts."""
        return np.array(self.texts, object)[self.codes]


def sample_frame(parts: Sequence[Part], columns: Sequence[str]) -> pd.DataFrame:
    """The rows of all parts, with some of their columns."""
    whole = [name for name in WHOLE if name in columns]
    if not parts:
        return pd.DataFrame([], columns=[*columns]).astype(dict.fromkeys(whole, "Int64"))
    frame = pd.DataFrame({name: np.concatenate([column(part, name) for part in parts]) for name in columns})
    return frame.astype(dict.fromkeys(whole, "Int64"))


def known(parts: Sequence[Part], name: str) -> bool:
    """Whether any row has a value in a column that is neither missing nor empty."""
    return any(_is_known(value) for part in parts if name in part for value in column(part, name))


def column(part: Part, name: str) -> NDArray[Any]:
    """The values of all rows of a part, [n]; NaN for missing ones."""
    value = part.get(name, math.nan)
    if isinstance(value, Gaps):
        return value.filled()
    if isinstance(value, Words):
        return value.spelled()
    if isinstance(value, np.ndarray):
        return value
    # `full` would make a text of its own for each row.
    return np.array([value], object if isinstance(value, str) else float).repeat(len(part["sample"]))


def is_broken(part: Part) -> NDArray[np.bool_]:
    """Whether each image of a part was broken."""
    return has_verdict(part, "broken")


def has_verdict(part: Part, word: str) -> NDArray[np.bool_]:
    """Whether each image of a part has this verdict."""
    verdict = part["verdict"]
    if isinstance(verdict, Words) and word in verdict.texts:
        return np.asarray(verdict.codes == verdict.texts.index(word))
    return np.asarray(column(part, "verdict") == word, bool)


def broken_images(part: Part) -> NDArray[np.int64]:
    """The images that were broken, in the order of the part."""
    images: NDArray[np.int64] = part["sample"][is_broken(part)]
    return images


def passes(part: Part, name: str) -> NDArray[np.int64]:
    """The forwards or backwards of all rows; 0 where an image was not attacked."""
    value = part.get(name)
    if isinstance(value, Gaps):
        counts: NDArray[np.int64] = np.zeros(len(value.known), np.int64)
        counts[value.known] = value.values
    else:
        counts = np.nan_to_num(column(part, name).astype(float)).astype(np.int64)
    return counts


def _is_known(value: Any) -> bool:
    return bool(value) and value == value
