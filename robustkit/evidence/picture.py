"""One image of a run, before and after an attack."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Picture:
    """One image before and after an attack, kept for the report's gallery."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int  # the image's number in the data set
    label: int
    clean_pred: int
    adv_pred: int
    x: NDArray[np.floating[Any]]  # [C, H, W], in [0, 1]
    x_adv: NDArray[np.floating[Any]]  # [C, H, W]
    # Probabilities of the predicted classes; None in runs of older versions, and of randomized models.
    clean_confidence: float | None = None
    adv_confidence: float | None = None
