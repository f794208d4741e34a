"""A finished or half-finished run as values: everything a report needs, and no model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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


@dataclass(frozen=True)
class Run:
    """The evidence of one run and what follows from it.

    `results` has one row per model x norm x eps x attack. Its columns:

    - model, dataset, split, norm ("-" for the clean row), eps (number), eps_text ("8/255"), attack
    - role: "clean", "attack" (run on every correctly classified image), "member" (one stage of an ensemble, run on
      what the stages before it left), "ensemble", "worst-case" (an image counts as robust if no attack broke it),
      "certified" (of a smoothed model: images predicted correctly whose class is certain all over the ball)
    - n: images; correct: images classified correctly under this attack; accuracy = correct / n
    - ci_low, ci_high, ci_method: 95 % interval of the accuracy ("wilson" or "clopper-pearson")
    - attacked, broken: images this attack was run on, and broke; success_rate = broken / attacked
    - forwards, backwards: passes spent, summed over images; of certificates in the clean row
    - abstained: only if a model is smoothed; in its clean row the images of which it says nothing, counted as wrong

    `samples` has one row per model x norm x eps x attack x image, columns model, norm, eps, eps_text, attack, sample,
    label, clean_pred, verdict ("clean-wrong", "broken", "robust"), adv_pred, question (after how many questions
    it broke), restart, target, linf, l2, l1, l0, forwards, backwards. Of a smoothed model clean_pred and adv_pred are
    -1 where it abstains, and rows of the attack "certified" have the verdict "clean-wrong", "certified" or
    "uncertified", the class that is certain in adv_pred, and in `radius`, a column of their own, how far it is (in the
    row's norm).

    `manifest` has the keys "robustkit" (version), "identity" (what determines the result), "environment", "created",
    "finished" (None while unfinished), "command", "seconds" (per stage), "warnings" (sentences).
    """

    folder: Path
    manifest: dict[str, Any]
    results: pd.DataFrame
    samples: pd.DataFrame
    pictures: list[Picture]
    class_names: tuple[str, ...]
