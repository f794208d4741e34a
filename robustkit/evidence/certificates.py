"""What certificates add to a run's tables: a lower bound beside the attacks' upper one, and a check that they agree.

Both are about the same images and the same smoothed classifier. The truth between them is the share of images that are
predicted correctly and whose smoothed class no change within the radius can turn.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from robustkit.classifier.smoothing import ABSTAINS, Smoothing
from robustkit.evidence.store import AttackRecord, CertificateRecord, CleanRecord

Proofs = Mapping[int, CertificateRecord]  # by image

_NAMED = 5  # images that a warning names


def passes(smoothing: Mapping[str, Any] | None) -> int:
    """Forwards of one clean image."""
    return 1 if smoothing is None else Smoothing(**smoothing).polled


def abstained(clean: Mapping[int, CleanRecord]) -> int:
    """Images of which nothing is said, and which count as wrong."""
    return sum(row.pred == ABSTAINS for row in clean.values())


def certified(clean: Mapping[int, CleanRecord], proofs: Proofs, norm: str, eps: float) -> set[int]:
    """Images predicted correctly, with their class certain all over the ball."""
    return {
        number
        for number, row in clean.items()
        if _proven(row, proofs[number]) > 0 and _radius(proofs[number], norm) >= eps
    }


def sample_rows(
    base: dict[str, Any], clean: Mapping[int, CleanRecord], proofs: Proofs, held: Set[int]
) -> list[dict[str, Any]]:
    """One row per image: the class that is certain, and its radius in the norm of `base`; `held` are certified."""
    rows = []
    for number in sorted(clean):
        row, proof = clean[number], proofs[number]
        verdict = "clean-wrong" if row.pred != row.label else "certified" if number in held else "uncertified"
        rows.append({
            **base, "attack": "certified", "sample": number, "label": row.label, "clean_pred": row.pred,
            "verdict": verdict, "adv_pred": proof.top if proof.l2 > 0 else ABSTAINS,
            "radius": _radius(proof, base["norm"]),
        })  # fmt: skip
    return rows


def contradictions(
    model: str,
    smoothing: Mapping[str, Any],
    clean: Mapping[int, CleanRecord],
    proofs: Proofs,
    hits: Iterable[AttackRecord],
) -> list[str]:
    """A sentence if an attack broke images within the radius that is certified for them; else nothing."""
    found = {
        hit.sample: hit for hit in hits if hit.success and hit.l2 <= _proven(clean[hit.sample], proofs[hit.sample])
    }
    if not found:
        return []
    shown = ", ".join(
        f"{number} (at L2 distance {hit.l2:.3g}, certified to {proofs[number].l2:.3g})"
        for number, hit in sorted(found.items())[:_NAMED]
    )
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [
        f"CONTRADICTION: {model} was broken within the certified radius of {len(found)} of {len(clean)} images: {shown}"
        f"{more}. A certificate is wrong with a chance of at most {smoothing['alpha']:g}, and an attack's verdict on "
        "an image too; where more contradict each other, the model does not repeat its answers: trust neither bound."
    ]


def _proven(row: CleanRecord, proof: CertificateRecord) -> float:
    """The L2 radius within which the true class is certain, below 0 for none."""
    return proof.l2 if row.pred == row.label == proof.top and proof.l2 > 0 else -1.0


def _radius(proof: CertificateRecord, norm: str) -> float:
    return float({"Linf": proof.linf, "L2": proof.l2, "L1": proof.l1}[norm])
