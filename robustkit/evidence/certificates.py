"""What certificates add to a run's tables: a lower bound beside the attacks' upper one, and a check that both agree.

Both bounds are about the same images and the same smoothed classifier. Between them lies the share of images that are
predicted correctly and whose smoothed class no change within the radius can turn.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.parts import Part
from robustkit.evidence.rows import CertificateRecord, CleanRecord
from robustkit.statistics.randomized_smoothing import ABSTAINS

_NAMED = 5  # images that a warning names


def certificate_passes(smoothing: Mapping[str, Any] | None) -> int:
    """Forwards for one clean image: one, or the noisy copies of a smoothed model."""
    return 1 if smoothing is None else int(smoothing["n0"] + smoothing["n"])


def abstained_images(clean: Mapping[int, CleanRecord]) -> int:
    """Number of images on which a model abstains, or which it rejects; they count as wrong."""
    return sum(row.pred == ABSTAINS for row in clean.values())


def certified_images(
    clean: Mapping[int, CleanRecord], certificates: Mapping[int, CertificateRecord], norm: str, eps: float
) -> set[int]:
    """Images that are predicted correctly and whose class is certain in the whole ball."""
    return {
        number
        for number, row in clean.items()
        if _proven_l2(row, certificates[number]) > 0 and _radius(certificates[number], norm) >= eps
    }


def certified_samples(
    clean: Mapping[int, CleanRecord], certificates: Mapping[int, CertificateRecord], norm: str, eps: float
) -> Part:
    """Samples of all images: the class that is certain, and its radius in `norm`."""
    certified = certified_images(clean, certificates, norm, eps)
    numbers = sorted(clean)
    rows = [(clean[number], certificates[number]) for number in numbers]
    return {
        "attack": "certified", "sample": np.array(numbers, np.int64),
        "label": np.array([row.label for row, _ in rows], np.int64),
        "clean_pred": np.array([row.pred for row, _ in rows], np.int64),
        "verdict": np.array([
            "clean-wrong" if row.pred != row.label else "certified" if number in certified else "uncertified"
            for number, (row, _) in zip(numbers, rows, strict=True)
        ], dtype=object),
        "adv_pred": np.array([proof.top if proof.l2 > 0 else ABSTAINS for _, proof in rows], dtype=float),
        "radius": np.array([_radius(proof, norm) for _, proof in rows]),
    }  # fmt: skip


def contradictions(
    model: str,
    smoothing: Mapping[str, Any],
    clean: Mapping[int, CleanRecord],
    certificates: Mapping[int, CertificateRecord],
    attacked: Iterable[AttackColumns],
) -> list[str]:
    """One sentence if an attack broke images within the radius that is certified for them, else nothing."""
    broken = {
        number: distance
        for rows in attacked
        for number, distance in _broken_at(rows)
        if distance <= _proven_l2(clean[number], certificates[number])
    }
    if not broken:
        return []
    shown = ", ".join(
        f"{number} (at L2 distance {distance:.3g}, certified to {certificates[number].l2:.3g})"
        for number, distance in sorted(broken.items())[:_NAMED]
    )
    more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
    return [
        f"CONTRADICTION: {model} was broken within the certified radius of {len(broken)} of {len(clean)} images: "
        f"{shown}{more}. A certificate is wrong with a chance of at most {smoothing['alpha']:g}, and so is an attack's "
        "verdict on an image; where more contradict each other, the model does not repeat its answers: trust neither "
        "bound."
    ]


def _broken_at(rows: AttackColumns) -> Iterable[tuple[int, float]]:
    """The broken images, with the L2 distances."""
    errors = rows.rows_where(rows.success > 0)
    return zip(errors.sample.tolist(), errors.l2.tolist(), strict=True)


def _proven_l2(row: CleanRecord, certificate: CertificateRecord) -> float:
    """The L2 radius within which the true class is certain, below 0 for none."""
    return certificate.l2 if row.pred == row.label == certificate.top and certificate.l2 > 0 else -1.0


def _radius(certificate: CertificateRecord, norm: str) -> float:
    return float({"Linf": certificate.linf, "L2": certificate.l2, "L1": certificate.l1}[norm])
