"""Pictures before and after an attack, chosen by a rule that is printed above them; one verdict for each image.

An image that any attack broke at any radius is shown as broken, at the smallest distance; it is shown as robust only if
no attack broke it anywhere.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch

from robustkit.evidence.parts import column, is_broken
from robustkit.evidence.picture import Picture
from robustkit.primitives.ball import NORMS
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import ball, is_minimum, measured_in_images, norm_name
from robustkit.statistics.randomized_smoothing import ABSTAINS

from ..shared.images import amplified, png
from ..shared.words import TIMES, printable
from .board import Board
from .headline_threat import headline_threat
from .overview import overview

MOST = 12
MOST_LARGE = 6  # three 224 x 224 pictures of noise take half a megabyte, and a page should stay small enough to mail
LARGE = 64 * 64
BROKEN_SHARE = 2 / 3  # robust images are worth a look too: some may only be hard to attack
RULE = (
    "For each model: first images that were broken, by increasing distance, alternating between the norms; then images "
    "that no attack broke at any radius, shown at the largest one. Each image appears once for each model."
)


class GalleryEntry(NamedTuple):
    """One image of the gallery: clean, adversarial, and their difference."""

    model: str
    threat: str
    attack: str
    sample: int
    label: str
    clean_pred: str
    adv_pred: str
    broken: bool
    norm: str
    distance: str
    nearest: str  # the distance of the nearest known adversarial example, where a run looked for it; else empty
    factor: str  # by how much the difference was amplified
    span: str  # the range of values from black to white
    width: int
    height: int
    clean_confidence: str  # of the predicted class, as text; empty where it is not known
    adv_confidence: str
    clean: str  # data URIs
    adversarial: str
    difference: str


def gallery(board: Board) -> list[GalleryEntry]:
    """Up to twelve pictures, fewer where they are large, shared evenly among the models."""
    if not board.pictures:
        return []
    most = MOST if board.pictures[0].x[0].size <= LARGE else MOST_LARGE
    models = [model for model in board.models if any(picture.model == model for picture in board.pictures)]
    each = max(1, most // max(1, len(models)))
    chosen = [picture for model in models for picture in _chosen(board, model, each)]
    return [_entry(board, picture) for picture in chosen[:most]]


def distance(picture: Picture) -> float:
    """Distance in the threat of the attack, Linf where that is no distance of images; in L0 and patches a count."""
    norm = norm_name(unmasked(picture.norm))
    if norm not in NORMS and measured_in_images(norm):
        x, x_adv = (torch.from_numpy(np.array(part)).unsqueeze(0) for part in (picture.x, picture.x_adv))
        return ball(norm, 0).distance(x, x_adv).item()
    delta = (picture.x_adv.astype(np.float64) - picture.x).ravel()
    order = {"L2": 2, "L1": 1, "L0": 0}.get(norm, np.inf)
    return float(np.linalg.norm(delta, order))


def hero(board: Board) -> GalleryEntry | None:
    """The first image of the run that was broken in the headline's ball, of the best model; None if there is none."""
    leading = headline_threat(board)
    norms = [leading.threat] if leading else board.minimums[:1]
    places = {row.model: place for place, row in enumerate(overview(board).rows)}
    shown = [
        picture for picture in board.pictures for norm in norms
        if (picture.norm, picture.eps_text) == (norm.norm, norm.eps_text) and _is_attack(picture) and _broken(picture)
    ]  # fmt: skip
    first = min(shown, key=lambda one: (places[one.model], one.sample, distance(one)), default=None)
    return None if first is None else _entry(board, first)


def _chosen(board: Board, model: str, most: int) -> list[Picture]:
    own = [picture for picture in board.pictures if picture.model == model and _is_attack(picture)]
    broken = [picture for picture in own if _broken(picture)]
    fallen = {picture.sample for picture in broken} | board.verdicts.broken_anywhere(model)
    robust = [picture for picture in own if picture.sample not in fallen]
    radii = {(threat.norm, threat.eps_text): threat.eps for threat in (*board.threats, *board.minimums)}
    first = _each_image_once(_norms_in_turn(broken, radii, nearest_first=True))
    rest = _each_image_once(_norms_in_turn(robust, radii, nearest_first=False))
    share = max(most - len(rest), round(most * BROKEN_SHARE), 1)
    return [*first[:share], *rest[: most - len(first[:share])]]


def _is_attack(picture: Picture) -> bool:
    """Whether there was anything to attack: the clean image is classified correctly."""
    return picture.clean_pred == picture.label


def _broken(picture: Picture) -> bool:
    """Whether another class was predicted; an abstention of a smoothed model is not enough."""
    return picture.adv_pred not in (picture.label, ABSTAINS)


def _norms_in_turn(
    pictures: Iterable[Picture], radii: Mapping[tuple[str, str], float], *, nearest_first: bool
) -> list[Picture]:
    """The smallest distance of each norm in turn, or the largest radius: two norms cannot be compared."""

    def order(picture: Picture) -> tuple[float, float, int]:
        eps, length = radii[picture.norm, picture.eps_text], distance(picture)
        return (length, eps, picture.sample) if nearest_first else (-eps, -length, picture.sample)

    by_norm: dict[str, list[Picture]] = defaultdict(list)
    for picture in pictures:
        by_norm[picture.norm].append(picture)
    columns = [sorted(column, key=order) for column in by_norm.values()]
    return [picture for row in zip_longest(*columns) for picture in row if picture]


def _each_image_once(pictures: Sequence[Picture]) -> list[Picture]:
    """The first picture of each image."""
    first: dict[int, Picture] = {}
    for picture in pictures:
        first.setdefault(picture.sample, picture)
    return list(first.values())


def _in_words(board: Board, norm: str, length: float) -> str:
    """A distance as the user wrote radii: "1/255" where it is one, in 255ths where all radii are."""
    if not measured_in_images(unmasked(norm)):
        return f"{length:.3g} in Linf"
    threats = [threat for threat in board.threats if threat.norm == norm]
    same = next((threat for threat in threats if math.isclose(threat.eps, length, rel_tol=1e-5)), None)
    if same is not None:
        return same.eps_text
    if threats and all(threat.eps_text.endswith("/255") for threat in threats):
        return f"{255 * length:.3g}/255"
    return f"{length:.0f}" if length == int(length) else f"{length:.3g}"


def _nearest(board: Board, picture: Picture) -> str:
    """The distance of the nearest adversarial example that a run without a radius found."""
    name = unmasked(picture.norm).lower()
    threat = next((one for one in board.minimums if one.norm == picture.norm), None)
    parts = board.verdicts.parts(picture.model, threat) if threat else []
    known = [
        distance for part in parts
        for distance in column(part, name)[is_broken(part) & (part["sample"] == picture.sample)].tolist()
    ]  # fmt: skip
    return _in_words(board, picture.norm, min(known)) if known else ""


def _entry(board: Board, picture: Picture) -> GalleryEntry:
    low, high = _span(picture)
    delta = picture.x_adv.astype(np.float64) - picture.x
    largest = float(np.abs(delta).max())
    scale = high - low
    length = distance(picture)
    return GalleryEntry(
        model=picture.model,
        threat=picture.norm if is_minimum(picture.eps_text) else f"{picture.norm} {picture.eps_text}",
        attack=printable(picture.attack),
        sample=picture.sample,
        label=board.class_name(picture.label),
        clean_pred=board.class_name(picture.clean_pred),
        adv_pred=board.class_name(picture.adv_pred),
        broken=_broken(picture),
        norm=picture.norm if measured_in_images(unmasked(picture.norm)) else "Linf",
        distance=_in_words(board, picture.norm, length),
        nearest=_nearest(board, picture),
        factor=f"{TIMES} {scale / (2 * largest):.3g}" if largest else "no difference",
        span=f"{low:g} to {high:g}",
        width=picture.x.shape[-1],
        height=picture.x.shape[-2],
        clean_confidence=_percent(picture.clean_confidence),
        adv_confidence=_percent(picture.adv_confidence),
        clean=png((picture.x.astype(np.float64) - low) / scale),
        adversarial=png((picture.x_adv.astype(np.float64) - low) / scale),
        difference=png(amplified(delta)),
    )


def _percent(confidence: float | None) -> str:
    if confidence is None:
        return ""
    return "over 99 %" if confidence > 0.995 else f"{100 * confidence:.0f} %"


def _span(picture: Picture) -> tuple[float, float]:
    """The values drawn black and white: 0 and 1, or the range of the picture where it is wider."""
    low = min(0.0, float(picture.x.min()), float(picture.x_adv.min()))
    high = max(1.0, float(picture.x.max()), float(picture.x_adv.max()))
    return low, high
