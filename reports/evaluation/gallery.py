"""Pictures before and after an attack, chosen by a rule that is printed above them."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch

from robustkit.evidence.run import Picture
from robustkit.primitives.ball import NORMS
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import ball, is_rendered, norm_name
from robustkit.statistics.randomized_smoothing import ABSTAINS

from ..shared.images import amplified, png
from ..shared.words import TIMES, printable
from .board import Board

MOST = 12
MOST_LARGE = 6  # three 224 x 224 pictures of noise take half a megabyte, and a page should stay small enough to mail
LARGE = 64 * 64
BROKEN_SHARE = 2 / 3  # robust images are worth a look too: some may only be hard to attack
RULE = (
    "For each model first images that were broken, the smallest distance first and the norms in turn, "
    "then some that stayed robust; no image twice as long as there are others."
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
    distance: str
    factor: str  # by how much the difference was amplified
    span: str  # the range of values from black to white
    width: int
    height: int
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
    if norm not in NORMS and not is_rendered(norm):
        x, x_adv = (torch.from_numpy(np.array(part)).unsqueeze(0) for part in (picture.x, picture.x_adv))
        return ball(norm, 0).distance(x, x_adv).item()
    delta = (picture.x_adv.astype(np.float64) - picture.x).ravel()
    order = {"L2": 2, "L1": 1, "L0": 0}.get(norm, np.inf)
    return float(np.linalg.norm(delta, order))


def _chosen(board: Board, model: str, most: int) -> list[Picture]:
    own = [picture for picture in board.pictures if picture.model == model and picture.clean_pred == picture.label]
    broken = _each_image_once(_norms_in_turn(picture for picture in own if _broken(picture)))
    robust = _each_image_once(_norms_in_turn(picture for picture in own if not _broken(picture)))
    share = max(most - len(robust), round(most * BROKEN_SHARE), 1)
    first = broken[:share]
    return first + robust[: most - len(first)]


def _broken(picture: Picture) -> bool:
    """Whether another class was predicted; an abstention of a smoothed model is not enough."""
    return picture.adv_pred not in (picture.label, ABSTAINS)


def _norms_in_turn(pictures: Iterable[Picture]) -> list[Picture]:
    """The smallest distance of each norm in turn: distances in two norms cannot be compared."""
    by_norm: dict[str, list[Picture]] = defaultdict(list)
    for picture in pictures:
        by_norm[picture.norm].append(picture)
    columns = [sorted(column, key=lambda picture: (distance(picture), picture.sample)) for column in by_norm.values()]
    return [picture for row in zip_longest(*columns) for picture in row if picture]


def _each_image_once(pictures: list[Picture]) -> list[Picture]:
    """The same pictures, those of images that came before at the end."""
    seen: set[int] = set()
    first: list[Picture] = []
    again: list[Picture] = []
    for picture in pictures:
        (again if picture.sample in seen else first).append(picture)
        seen.add(picture.sample)
    return first + again


def _in_words(norm: str, length: float) -> str:
    text = f"{length:.0f}" if length == int(length) else f"{length:.3g}"
    return f"{text} in Linf" if is_rendered(unmasked(norm)) else text


def _entry(board: Board, picture: Picture) -> GalleryEntry:
    low, high = _span(picture)
    delta = picture.x_adv.astype(np.float64) - picture.x
    largest = float(np.abs(delta).max())
    scale = high - low
    length = distance(picture)
    return GalleryEntry(
        model=picture.model,
        threat=f"{picture.norm} {picture.eps_text}",
        attack=printable(picture.attack),
        sample=picture.sample,
        label=board.class_name(picture.label),
        clean_pred=board.class_name(picture.clean_pred),
        adv_pred=board.class_name(picture.adv_pred),
        broken=_broken(picture),
        distance=_in_words(picture.norm, length),
        factor=f"{TIMES} {scale / (2 * largest):.3g}" if largest else "no difference",
        span=f"{low:g} to {high:g}",
        width=picture.x.shape[-1],
        height=picture.x.shape[-2],
        clean=png((picture.x.astype(np.float64) - low) / scale),
        adversarial=png((picture.x_adv.astype(np.float64) - low) / scale),
        difference=png(amplified(delta)),
    )


def _span(picture: Picture) -> tuple[float, float]:
    """The values drawn black and white: 0 and 1, or the range of the picture where it is wider."""
    low = min(0.0, float(picture.x.min()), float(picture.x_adv.min()))
    high = max(1.0, float(picture.x.max()), float(picture.x_adv.max()))
    return low, high
