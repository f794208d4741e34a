"""The adversarial examples that a run kept, read from its store, and what must hold for each of them.

A point that breaks an image at one radius breaks it at every larger one, and is stored once, at the smallest.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch

from robustkit.errors import UserError
from robustkit.evidence.opening import not_ours
from robustkit.evidence.pixels import Pixels, unpacked
from robustkit.evidence.rows import AttackRecord, OriginalRecord, WitnessRecord
from robustkit.evidence.store import Store
from robustkit.primitives.ball import NORMS
from robustkit.primitives.mask import Mask, unmasked
from robustkit.primitives.threat import ball, is_minimum, measured_in_images, norm_name, radius_under

KEPT = "kept"  # entry "adversarial" of the manifest of a run that kept them
_SLACK = 1e-9  # of float64 sums


class KeptWitness(NamedTuple):
    """One adversarial example with the row of evidence that it stands for."""

    row: AttackRecord
    label: int
    x: Pixels  # [*S] in [0, 1]
    x_adv: Pixels  # [*S]


def witness_places(store: Store, model: str) -> list[tuple[str, str, str, int]]:
    """Norm, eps_text, attack and image of each adversarial example that was kept of a model, without its pixels."""
    if not store.has(WitnessRecord):
        return []
    found = store.read("SELECT norm, eps_text, attack, sample FROM witness WHERE model = ?", model)
    return [(str(norm), str(eps_text), str(attack), int(sample)) for norm, eps_text, attack, sample in found]


def kept_witnesses(store: Store, model: str) -> Iterator[KeptWitness]:
    """The adversarial examples of a model, one after the other.

    Raises:
        UserError: one cannot be read, or has no row.
    """
    rows = {(row.norm, row.eps_text, row.attack, row.sample): row for row in store.rows(AttackRecord, model)}
    clean = store.clean(model)
    for key in sorted(witness_places(store, model)):
        if key not in rows or key[3] not in clean:
            raise not_ours(store.folder, f"an adversarial example of image {key[3]} has no verdict")
        pixels = pixels_of(store, model, *key)
        yield KeptWitness(rows[key], clean[key[3]].label, *pixels)


def pixels_of(store: Store, model: str, norm: str, eps_text: str, attack: str, sample: int) -> tuple[Pixels, Pixels]:
    """An image and its adversarial example, both of the type of the example.

    Raises:
        UserError: one of them is missing, or no picture of that shape.
    """
    place: dict[str, str | int] = {"norm": norm, "eps_text": eps_text, "attack": attack, "sample": sample}
    found = next(iter(store.rows(WitnessRecord, model, **place)), None)
    clean = next(iter(store.rows(OriginalRecord, sample=sample)), None)
    x_adv = None if found is None else unpacked(found.x_adv, found.shape, found.kind)
    x = None if clean is None else unpacked(clean.x, clean.shape, clean.kind)
    if x is None or x_adv is None or x.shape != x_adv.shape:
        raise not_ours(store.folder, f"the adversarial example of image {sample} cannot be read")
    return x.astype(x_adv.dtype), x_adv


def missing_witnesses(store: Store, model: str) -> list[AttackRecord]:
    """Broken images whose adversarial example is stored neither at their radius nor at a smaller one."""
    kept: dict[tuple[str, str, int], list[float]] = {}
    for norm, eps_text, attack, sample in witness_places(store, model):
        kept.setdefault((norm, attack, sample), []).append(radius_under(norm, eps_text))
    return [
        row for row in store.rows(AttackRecord, model)
        if row.success and not any(eps <= radius_under(row.norm, row.eps_text)
                                   for eps in kept.get((row.norm, row.attack, row.sample), ()))
    ]  # fmt: skip


def problems_of(witness: KeptWitness, masks: Mapping[str, Mask]) -> Iterator[str]:
    """What is wrong with the pixels of an adversarial example.

    Args:
        witness: the example.
        masks: by label; rectangles need none.
    """
    row = witness.row
    x, x_adv = (torch.from_numpy(np.array(part)).unsqueeze(0) for part in (witness.x, witness.x_adv))
    if not (x_adv >= 0).all() or not (x_adv <= 1).all():
        yield "has pixels outside [0, 1]"
    distances = {norm: float(ball(norm, 0).distance(x, x_adv)) for norm in NORMS}
    stored = {"Linf": row.linf, "L2": row.l2, "L1": row.l1, "L0": row.l0}
    if any(stored[norm] is None or abs(distances[norm] - stored[norm]) > _SLACK * distances[norm] for norm in NORMS):
        yield "has another distance than its row"
    norm = norm_name(unmasked(row.norm))
    if measured_in_images(norm) and not is_minimum(row.eps_text):
        eps = radius_under(row.norm, row.eps_text)
        if float(ball(norm, eps).distance(x, x_adv)) > eps * (1 + _SLACK):
            yield f"lies outside the ball of {row.norm} {row.eps_text}"
    mask = mask_of(row.norm, masks)
    mask = None if mask is None else mask.of_image(row.sample)
    if mask is not None and not mask.placed(x, mask.inside(x_adv)).equal(x_adv):
        yield "changes pixels outside the mask"
    if row.adv_pred == witness.label or not row.success:
        yield "is stored as a success and has the verdict of a failure"


def mask_of(norm: str, masks: Mapping[str, Mask]) -> Mask | None:
    """The mask in the name of a threat; None without one, or where its pixels are not known."""
    label = norm.removeprefix(unmasked(norm)).removeprefix("-in-")
    if label in masks:
        return masks[label]
    if not label.startswith("patch-"):
        return None
    try:
        return Mask.of("patch:" + ",".join(label.split("-")[1:]))
    except UserError:
        return None
