"""Rows of evidence out of what the engine and the model return."""

import math
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from robustkit.engine.jobs import Outcome, ranked
from robustkit.engine.nearness import Nearness
from robustkit.evaluation.plan import PlannedAttack
from robustkit.evidence.pixels import packed
from robustkit.evidence.rows import (
    CLEAN_CELL,
    NO_RANDOM_STEP,
    AttackRecord,
    CertificateRecord,
    CleanRecord,
    ConfidenceRecord,
    DrawRecord,
    NearnessRecord,
    OriginalRecord,
    PictureRecord,
    QueryRecord,
    Row,
    WitnessRecord,
)
from robustkit.primitives.norm_balls import distances
from robustkit.primitives.trust import CleanGradient
from robustkit.statistics.randomized_smoothing import Certified
from robustkit.statistics.single_draw import FreshDraws

_RANKED = 1000  # wrong classes remembered per image, for attacks that aim at the likeliest
_PICTURE_VALUES = 3 * 256 * 256  # of the largest image whose pixels are kept
_MEASURED = 16 * 3 * 32 * 32  # values whose distances are computed together, in float64


def clean_records(
    model: str, numbers: Sequence[int], y: Tensor, predictions: Tensor, scores: Tensor
) -> list[CleanRecord]:
    """What a model predicts for clean images, with the wrong classes ranked by its scores `[n, K]`."""
    rows = zip(numbers, y.tolist(), predictions.tolist(), ranked(scores), strict=True)
    return [CleanRecord(model, number, label, pred, _ranking(order, label)) for number, label, pred, order in rows]


def certificate_records(
    model: str, numbers: Sequence[int], top: Tensor, votes: Tensor, certified: Certified
) -> list[CertificateRecord]:
    """What is certain about clean images: the class `top`, its votes `[n, K]` counted, and the radii."""
    radii = [certified.radius_in(norm) for norm in ("Linf", "L2", "L1")]
    columns = (top, votes.gather(1, top[:, None]).squeeze(1), certified.probability, *radii)
    rows = zip(numbers, *(column.tolist() for column in columns), strict=True)
    return [CertificateRecord(model, *row) for row in rows]


def clean_draw_records(
    model: str, numbers: Sequence[int], draws: Sequence[FreshDraws], verdicts: Sequence[int]
) -> list[DrawRecord]:
    """Single answers of a randomized model to clean images; `verdicts` are the forwards of their verdicts."""
    return [
        DrawRecord(model, *CLEAN_CELL, number, *each, forwards + 2 * each.draws)
        for number, each, forwards in zip(numbers, draws, verdicts, strict=True)
    ]


def clean_confidences(
    model: str, numbers: Sequence[int], confidences: Sequence[float] | None, pictured: Collection[int]
) -> list[ConfidenceRecord]:
    """How confident a model is in the classes of those clean images of which there are pictures."""
    named = zip(numbers, confidences or [], strict=confidences is not None)
    return [_confidence((model, *CLEAN_CELL, number), value) for number, value in named if number in pictured]


def attack_records(
    model: str, attack: PlannedAttack, outcomes: Sequence[Outcome], pictured: Collection[int]
) -> Iterator[Row]:
    """The outcomes of an attack, what else was found out there, and the pixels of the images in `pictured`."""
    for outcome, (linf, l2, l1, l0) in zip(outcomes, _all_distances(outcomes), strict=True):
        key = (model, attack.threat.norm, attack.threat.eps_text, attack.name, outcome.sample)
        yield AttackRecord(
            *key, int(outcome.success), outcome.label, outcome.queries, outcome.restart, outcome.loss_target,
            linf, l2, l1, int(l0), outcome.forwards, outcome.backwards,
        )  # fmt: skip
        if outcome.draws is not None:
            yield DrawRecord(*key, *outcome.draws, 0)
        if outcome.nearness is not None:
            yield _nearness_record(key, outcome.nearness)
        if attack.counts_queries:
            yield _query_record(key, attack, outcome)
        if outcome.sample in pictured and outcome.x.numel() <= _PICTURE_VALUES:
            shape = " ".join(str(side) for side in outcome.x.shape)
            yield PictureRecord(*key, shape, *(part.numpy().tobytes() for part in (outcome.x, outcome.x_adv)))
            if outcome.confidence is not None:
                yield _confidence(key, outcome.confidence)


def witness_records(model: str, attack: PlannedAttack, outcome: Outcome) -> list[Row]:
    """The adversarial example of an image, and the image itself."""
    shape, kind = " ".join(map(str, outcome.x.shape)), str(outcome.x_adv.dtype).removeprefix("torch.")
    key = (model, attack.threat.norm, attack.threat.eps_text, attack.name, outcome.sample)
    x, x_adv = (packed(part.numpy()) for part in (outcome.x.float(), outcome.x_adv))
    # Images are read as float32, whatever type the model has.
    return [WitnessRecord(*key, shape, kind, x_adv), OriginalRecord(outcome.sample, shape, "float32", x)]


def _all_distances(outcomes: Sequence[Outcome]) -> Iterator[list[float]]:
    """The distances of each outcome in Linf, L2, L1 and L0."""
    size = max(2, _MEASURED // max(1, outcomes[0].x.numel())) if outcomes else 1
    for start in range(0, len(outcomes), size):
        part = outcomes[start : start + size]
        # Sums over a row take another path in a batch of one, so a lone row is measured together with a copy.
        rows = part if len(part) > 1 else [*part, *part]
        x, x_adv = torch.stack([each.x for each in rows]), torch.stack([each.x_adv for each in rows])
        yield from distances(x, x_adv).numpy()[:, : len(part)].T.tolist()


def _query_record(key: tuple[str, str, str, str, int], attack: PlannedAttack, outcome: Outcome) -> QueryRecord:
    point = outcome.x_adv if outcome.parameters is None else outcome.parameters
    distance = attack.attack.ball.distance(outcome.x.unsqueeze(0), point.unsqueeze(0)).item()
    return QueryRecord(*key, outcome.all_queries, _distances(outcome, distance))


def _confidence(key: tuple[str, str, str, str, int], probability: float) -> ConfidenceRecord:
    # On a GPU the last bits depend on the batch, and a page shows three digits.
    return ConfidenceRecord(*key, round(probability, 4))


def _distances(outcome: Outcome, judged: float) -> str:
    """The distances after queries, none of which is nearer than the error that the unmodified model confirms."""
    known = [each for each in outcome.approach if outcome.success and math.isfinite(each.distance)]
    return " ".join(f"{each.queries}:{max(each.distance, judged):.9g}" for each in known)


def _nearness_record(key: tuple[str, str, str, str, int], near: Nearness) -> NearnessRecord:
    classes = [str(name) for name, ratio in zip(near.classes, near.ratios, strict=True) if ratio < 1]
    clean = near.clean_gradient or CleanGradient()
    return NearnessRecord(
        *key, near.believed, " ".join(classes), near.predicted, near.obtained, near.at_clean or 0.0, near.unseen or 0.0,
        clean.step, clean.way, clean.unseen, *(clean.random or NO_RANDOM_STEP),
    )  # fmt: skip


def _ranking(order: Sequence[int], label: int) -> str:
    return " ".join(map(str, [number for number in order if number != label][:_RANKED]))
