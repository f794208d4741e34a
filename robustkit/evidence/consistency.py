"""What the rows of a run's evidence must agree on, whatever the model was.

A row that was edited by hand, or damaged, usually breaks one of these. Rows that somebody changed consistently do not;
only the model itself, asked again at the stored points, can tell those.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustkit.evidence.parts import IMAGE, Part, column
from robustkit.evidence.picture import Picture
from robustkit.evidence.rows import NO_VERDICT
from robustkit.evidence.run import Run
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import is_minimum
from robustkit.statistics.randomized_smoothing import ABSTAINS

_DISTANCES = {"Linf": "linf", "L2": "l2", "L1": "l1", "L0": "l0"}
_SLACK = 1 + 1e-9  # distances are rounded when they are stored
_ROUNDED = 1 + 1e-5  # the sums of a large image are rounded, too
_SHOWN = 5  # image numbers in a sentence


class Contradiction(NamedTuple):
    """Rows that cannot all be true."""

    model: str
    what: str


def contradictions_in(run: Run) -> Iterator[Contradiction]:
    """Everything in a run's evidence that cannot be true."""
    by_model: dict[str, list[Part]] = {}
    for part in run.sample_rows.parts:
        if part["attack"] != "certified":
            by_model.setdefault(str(part["model"]), []).append(part)
    for name, parts in by_model.items():
        always_answers = name not in run.manifest.get("randomized", {}) and not _abstains(run, name)
        found: dict[str, set[int]] = {}
        for part in parts:
            for problem, wrong in _wrong_rows(part, always_answers=always_answers).items():
                found.setdefault(problem, set()).update(part["sample"][wrong].tolist())
        for problem, images in found.items():
            if images:
                yield Contradiction(name, f"{problem} ({image_list(images)})")
        if _contradict(parts):
            yield Contradiction(name, "an image has several labels or clean predictions")
    yield from _wrong_pictures(run)


def _wrong_rows(part: Part, *, always_answers: bool) -> dict[str, NDArray[np.bool_]]:
    """For each problem which rows have it."""
    verdict, label, clean_pred = (column(part, name) for name in ("verdict", "label", "clean_pred"))
    clean_wrong, broken, robust, error = (
        np.asarray(verdict == word, bool) for word in ("clean-wrong", "broken", "robust", NO_VERDICT)
    )
    adv_pred, forwards, backwards = (column(part, name).astype(float) for name in ("adv_pred", "forwards", "backwards"))
    attacked, away = ~np.isnan(adv_pred), np.zeros(len(label), bool)
    no_class = (adv_pred == ABSTAINS) & (not always_answers)
    norm = _DISTANCES.get(unmasked(part["norm"]))
    if norm is not None and not is_minimum(part["eps_text"]):
        away = attacked & ~(column(part, norm).astype(float) <= part["eps"] * _SLACK)
    return {
        "a correctly classified image counts as wrong": clean_wrong & (clean_pred == label),
        "a wrongly classified image was attacked": ~clean_wrong & (clean_pred != label) & ~error,
        "a broken image is still classified as its label": broken & (adv_pred == label),
        "a broken image has no wrong class": broken & attacked & (adv_pred < 0),
        "a robust image is classified as another class": robust & attacked & (adv_pred != label) & ~no_class,
        "an adversarial example is farther away than eps": away,
        "an adversarial example has distances that no image has": attacked & ~_possible_distances(part),
        "fewer than no passes were made": (forwards < 0) | (backwards < 0),
    }


def _possible_distances(part: Part) -> NDArray[np.bool_]:
    """Which rows have distances as an image has them, of any size: Linf <= L2 <= L1, and L2 squared <= Linf * L1."""
    linf, l2, l1, l0 = (column(part, name).astype(float) for name in _DISTANCES.values())
    ordered = (linf >= 0) & (linf <= l2 * _ROUNDED) & (l2 <= l1 * _ROUNDED) & (l0 >= 0)
    unknown = np.isnan(linf) | np.isnan(l2) | np.isnan(l1)
    return np.asarray((ordered & (l2 * l2 <= linf * l1 * _ROUNDED)) | unknown, bool)


def _contradict(parts: Sequence[Part]) -> bool:
    """Whether an image has another label or clean prediction in one part than in another."""
    images = {tuple(id(part[name]) for name in IMAGE): part for part in parts}.values()
    rows = np.concatenate([np.stack([part[name] for name in IMAGE], axis=1) for part in images])
    return len(np.unique(rows, axis=0)) > len(np.unique(rows[:, 0]))


def _wrong_pictures(run: Run) -> Iterator[Contradiction]:
    parts: dict[tuple[str, ...], list[Part]] = {}
    for part in run.sample_rows.parts:
        parts.setdefault((part["model"], part["norm"], part["eps_text"], part["attack"]), []).append(part)
    for picture in run.pictures:
        place = picture.model, picture.norm, picture.eps_text, picture.attack
        yield from _wrong_picture(picture, parts.get(place, ()))


def _wrong_picture(picture: Picture, parts: Iterable[Part]) -> Iterator[Contradiction]:
    """Contradictions between the pixels of an adversarial example and its row, which is in one of the parts."""
    change = picture.x_adv.astype("float64") - picture.x.astype("float64")
    for part in parts:
        here = np.flatnonzero((part["sample"] == picture.sample) & ~np.isnan(column(part, "adv_pred").astype(float)))
        for row in here.tolist():
            linf = float(column(part, "linf")[row])
            if not math.isclose(abs(change).max(), linf, rel_tol=1e-5, abs_tol=1e-7):
                what = (
                    f"the stored example of image {picture.sample} under {picture.attack} has another distance than "
                    "its row"
                )
                yield Contradiction(picture.model, what)


def _abstains(run: Run, model: str) -> bool:
    """Whether a model is smoothed or rejects images, so that it may predict no class."""
    entries = {entry["name"]: entry for entry in run.manifest["identity"]["models"]}
    entry = entries.get(model, {})
    return "smoothing" in entry or bool(entry.get("rejects"))


def image_list(samples: Iterable[int]) -> str:
    """The first few of some image numbers, in words."""
    numbers = sorted(set(samples))
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"image{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:_SHOWN]))}{more}"
