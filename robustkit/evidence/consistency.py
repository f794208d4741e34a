"""What the rows of a run's evidence must agree on, whatever the model was.

A row that was edited by hand, or damaged, usually breaks one of these. Rows that somebody changed consistently do not;
only the model itself, asked again at the stored points, can tell those.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pandas as pd

from robustkit.evidence.run import Picture, Run
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import is_minimum

_DISTANCES = {"Linf": "linf", "L2": "l2", "L1": "l1", "L0": "l0"}
_SLACK = 1 + 1e-9  # distances are rounded when they are stored
_SHOWN = 5  # image numbers in a sentence


class Contradiction(NamedTuple):
    """Rows that cannot all be true."""

    model: str
    what: str


def contradictions_in(run: Run) -> Iterator[Contradiction]:
    """Everything in a run's evidence that cannot be true."""
    for model, rows in run.samples[run.samples["attack"] != "certified"].groupby("model", sort=False):
        name = str(model)
        always_answers = name not in run.manifest.get("randomized", {}) and not _smoothed(run, name)
        for problem, wrong in _wrong_rows(rows, always_answers=always_answers).items():
            if len(wrong):
                yield Contradiction(name, f"{problem} ({_images(wrong)})")
        if (rows.groupby("sample")[["label", "clean_pred"]].nunique() > 1).any(axis=None):
            yield Contradiction(name, "an image has several labels or clean predictions")
    for picture in run.pictures:
        yield from _wrong_picture(picture, run.samples)


def _wrong_rows(rows: pd.DataFrame, *, always_answers: bool) -> dict[str, pd.DataFrame]:
    clean_wrong, broken = rows["verdict"] == "clean-wrong", rows["verdict"] == "broken"
    attacked = rows["adv_pred"].notna()
    within = pd.Series(True, index=rows.index)
    for norm, column in _DISTANCES.items():
        own = (rows["norm"].map(unmasked) == norm) & ~rows["eps_text"].map(is_minimum) & attacked
        within &= ~own | (rows[column].astype(float) <= rows["eps"] * _SLACK)
    robust_elsewhere = (rows["verdict"] == "robust") & (rows["adv_pred"] != rows["label"])
    return {
        "a correctly classified image counts as wrong": rows[clean_wrong & (rows["clean_pred"] == rows["label"])],
        "a wrongly classified image was attacked": rows[
            ~clean_wrong & (rows["clean_pred"] != rows["label"]) & (rows["verdict"] != "error")
        ],
        "a broken image is still classified as its label": rows[broken & (rows["adv_pred"] == rows["label"])],
        "a robust image is classified as another class": rows[robust_elsewhere & always_answers],
        "an adversarial example is farther away than eps": rows[~within],
        "fewer than no passes were made": rows[(rows["forwards"] < 0) | (rows["backwards"] < 0)],
    }


def _wrong_picture(picture: Picture, samples: pd.DataFrame) -> Iterator[Contradiction]:
    """Contradictions between the pixels of an adversarial example and its row."""
    change = picture.x_adv.astype("float64") - picture.x.astype("float64")
    rows = samples[
        (samples["model"] == picture.model) & (samples["norm"] == picture.norm)
        & (samples["eps_text"] == picture.eps_text) & (samples["attack"] == picture.attack)
        & (samples["sample"] == picture.sample)
    ]  # fmt: skip
    for row in rows[rows["adv_pred"].notna()].itertuples():
        if not math.isclose(abs(change).max(), float(str(row.linf)), rel_tol=1e-5, abs_tol=1e-7):
            what = (
                f"the stored picture of image {picture.sample} under {picture.attack} has another distance than its row"
            )
            yield Contradiction(picture.model, what)


def _smoothed(run: Run, model: str) -> bool:
    entries = {entry["name"]: entry for entry in run.manifest["identity"]["models"]}
    return "smoothing" in entries.get(model, {})


def _images(rows: pd.DataFrame) -> str:
    return image_list(rows["sample"].tolist())


def image_list(samples: Iterable[int]) -> str:
    """The first few of some image numbers, in words."""
    numbers = sorted(set(samples))
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"image{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:_SHOWN]))}{more}"
