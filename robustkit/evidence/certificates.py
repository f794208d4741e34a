"""What certificates add to a run's tables: a lower bound beside the attacks' upper one, and a check that both agree.

Both bounds are about the same images and the same smoothed classifier. Between them lies the share of images that are
predicted correctly and whose smoothed class no change within the radius can turn.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from robustkit.evidence.rows import AttackRecord, CertificateRecord, CleanRecord
from robustkit.statistics.randomized_smoothing import ABSTAINS

_NAMED = 5  # images that a warning names


def certificate_passes(smoothing: Mapping[str, Any] | None) -> int:
    """Forwards for one clean image: one, or the noisy copies of a smoothed model."""
    return 1 if smoothing is None else int(smoothing["n0"] + smoothing["n"])


def abstained_images(clean: Mapping[int, CleanRecord]) -> int:
    """Number of images on which a smoothed or randomized model abstains; they count as wrong."""
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


def certified_rows(
    clean: Mapping[int, CleanRecord], certificates: Mapping[int, CertificateRecord], norm: str, eps: float
) -> list[dict[str, Any]]:
    """One row of samples per image: the class that is certain, and its radius in `norm`."""
    certified = certified_images(clean, certificates, norm, eps)
    rows = []
    for number in sorted(clean):
        row, certificate = clean[number], certificates[number]
        verdict = "clean-wrong" if row.pred != row.label else "certified" if number in certified else "uncertified"
        rows.append({
            "attack": "certified", "sample": number, "label": row.label, "clean_pred": row.pred, "verdict": verdict,
            "adv_pred": certificate.top if certificate.l2 > 0 else ABSTAINS, "radius": _radius(certificate, norm),
        })  # fmt: skip
    return rows


def contradictions(
    model: str,
    smoothing: Mapping[str, Any],
    clean: Mapping[int, CleanRecord],
    certificates: Mapping[int, CertificateRecord],
    records: Iterable[AttackRecord],
) -> list[str]:
    """One sentence if an attack broke images within the radius that is certified for them, else nothing."""
    broken = {
        record.sample: record
        for record in records
        if record.success and record.l2 <= _proven_l2(clean[record.sample], certificates[record.sample])
    }
    if not broken:
        return []
    shown = ", ".join(
        f"{number} (at L2 distance {record.l2:.3g}, certified to {certificates[number].l2:.3g})"
        for number, record in sorted(broken.items())[:_NAMED]
    )
    more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
    return [
        f"CONTRADICTION: {model} was broken within the certified radius of {len(broken)} of {len(clean)} images: "
        f"{shown}{more}. A certificate is wrong with a chance of at most {smoothing['alpha']:g}, and so is an attack's "
        "verdict on an image; where more contradict each other, the model does not repeat its answers: trust neither "
        "bound."
    ]


def _proven_l2(row: CleanRecord, certificate: CertificateRecord) -> float:
    """The L2 radius within which the true class is certain, below 0 for none."""
    return certificate.l2 if row.pred == row.label == certificate.top and certificate.l2 > 0 else -1.0


def _radius(certificate: CertificateRecord, norm: str) -> float:
    return float({"Linf": certificate.linf, "L2": certificate.l2, "L1": certificate.l1}[norm])
