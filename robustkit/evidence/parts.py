"""`Run.samples` is made of parts, one for each attack at one threat, so that no row is an object of its own."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# By column its values, [n], or the one value of all rows; NaN for whole numbers that are missing.
Part = dict[str, Any]

_WHOLE: Final = ("adv_pred", "question", "restart", "target", "l0", "forwards", "backwards", "queries")


def sample_frame(parts: Sequence[Part], columns: Sequence[str]) -> pd.DataFrame:
    """The rows of all parts, with some of their columns."""
    whole = [name for name in _WHOLE if name in columns]
    if not parts:
        return pd.DataFrame([], columns=[*columns]).astype(dict.fromkeys(whole, "Int64"))
    frame = pd.DataFrame({name: np.concatenate([_values(part, name) for part in parts]) for name in columns})
    return frame.astype(dict.fromkeys(whole, "Int64"))


def known(parts: Sequence[Part], name: str) -> bool:
    """Whether any row has a value in a column that is neither missing nor empty."""
    return any(_is_known(value) for part in parts if name in part for value in part[name])


def _values(part: Part, name: str) -> NDArray[Any]:
    value = part.get(name, math.nan)
    if isinstance(value, np.ndarray):
        return value
    # `full` would make a text of its own for each row.
    return np.array([value], object if isinstance(value, str) else float).repeat(len(part["sample"]))


def _is_known(value: Any) -> bool:
    return bool(value) and value == value
