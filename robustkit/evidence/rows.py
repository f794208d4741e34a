"""The rows of the evidence: one class for each table of a run's SQLite file."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, TypeVar

from robustkit.checks.facts import ProbeRecord

CLEAN_CELL: Final = ("-", "0", "clean")  # norm, eps_text and attack of rows about the clean image


@dataclass(frozen=True)
class CleanRecord:
    """The prediction of a model for one clean image."""

    model: str
    sample: int
    label: int
    pred: int  # -1 where a model abstains or rejects
    ranking: str  # the most likely wrong classes, as "3 1 7"


@dataclass(frozen=True)
class CertificateRecord:
    """The certificate of a smoothed model for one clean image; written together with its `CleanRecord`."""

    model: str
    sample: int
    top: int  # class that most of the first noisy copies chose
    votes: int  # for this class, of the further noisy copies
    probability: float  # its lower bound
    linf: float  # radii; 0 where nothing is certified
    l2: float
    l1: float


@dataclass(frozen=True)
class AttackRecord:
    """The result of one attack on one image."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int
    success: int
    adv_pred: int
    queries_to_break: int
    restart: int
    target: int
    linf: float
    l2: float
    l1: float
    l0: int
    forwards: int
    backwards: int


@dataclass(frozen=True)
class DrawRecord:
    """Single answers of a randomized model at the last point of one attack on one image, or at the clean image."""

    model: str
    norm: str  # "-", "0" and "clean" for the clean image
    eps_text: str
    attack: str
    sample: int
    draws: int  # in each half, as in `FreshDraws`
    selection: int
    estimation: int
    forwards: int  # for the verdict on the clean image and these draws; 0 where the attack's row counts them


NO_RANDOM_STEP = (-1.0, -1.0)


@dataclass(frozen=True)
class NearnessRecord:
    """How near the best point of one attack on one image is to the wrong classes."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int
    ratio: float  # of the nearest class; 0 where the gradient is not to be believed
    classes: str  # those with a ratio below 1, the nearest first, as "3 1 7"
    predicted: float  # how much of the true class's lead over the nearest class can be taken away
    obtained: float  # how much was, where the gradient says that it is most
    at_clean: float  # ratio at the clean image; 0 where it was not measured, or its gradient is not to be believed
    unseen: float  # how much of that lead values without a gradient move, either way; 0 where it was not measured
    # At the clean image: what a short step along the gradient, and the whole way, gain of what it predicts, and how far
    # values without a gradient move the lead, as a share of all that it predicts; 1, 1 and 0 where not measured.
    clean_step: float
    clean_way: float
    clean_unseen: float
    # And how far a random step is from what the gradient says, and from a straight line, in standard deviations of what
    # such steps change; 0 where it was lost in rounding, -1 where none was taken.
    random_error: float
    random_bend: float


@dataclass(frozen=True)
class QueryRecord:
    """How many queries one attack without gradients spent on one image, over all of its trials."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int
    queries: int  # until the image was broken, or all
    distances: str  # without a radius, the distance of the nearest error after some queries: "20:0.41 50:0.32"


@dataclass(frozen=True)
class PictureRecord:
    """One image before and after an attack, as the bytes of its floats."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int
    shape: str
    x: bytes
    x_adv: bytes


@dataclass(frozen=True)
class ConfidenceRecord:
    """The probability that a model gives the class it predicts, for one picture of the report."""

    model: str
    norm: str  # "-", "0" and "clean" for the clean image
    eps_text: str
    attack: str
    sample: int
    probability: float  # softmax of the logits


@dataclass(frozen=True)
class CorruptedRecord:
    """The prediction of a model for one corrupted image."""

    model: str
    corruption: str
    severity: int
    sample: int
    pred: int  # -1 where a model abstains or rejects
    pixels: int  # 48 bits of a hash of the pixels


@dataclass(frozen=True)
class WitnessRecord:
    """The adversarial example of one attack on one image, kept with `--keep-adversarial`."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int
    shape: str
    kind: str  # "float32", or "float64" of a model of that type
    x_adv: bytes  # as `packed` makes them


@dataclass(frozen=True)
class OriginalRecord:
    """A clean image of which there are adversarial examples."""

    sample: int
    shape: str
    kind: str
    x: bytes  # as `packed` makes them


NO_VERDICT: Final = "error"  # what stands in the samples of such an image


@dataclass(frozen=True)
class FailedRecord:
    """An image that ended every process which worked on it, so that it has no verdict."""

    model: str
    sample: int
    label: int
    tries: int  # processes that it ended, alone
    reason: str  # how they ended, such as "SIGKILL"


@dataclass(frozen=True)
class AnswerRecord:
    """The logits of a model at fixed points, by which it is recognised."""

    role: str  # "model" or "surrogate"
    model: str
    images: int  # the first so many points are images of the run
    logits: bytes  # [points, K] little-endian fp32


Row = (
    CleanRecord | CertificateRecord | AttackRecord | DrawRecord | NearnessRecord | QueryRecord | PictureRecord
    | CorruptedRecord | WitnessRecord | OriginalRecord | ProbeRecord | ConfidenceRecord | FailedRecord
)  # fmt: skip
TABLE_OF = {
    CleanRecord: "clean", CertificateRecord: "certified", AttackRecord: "attacked", DrawRecord: "drawn",
    NearnessRecord: "near", QueryRecord: "queried", PictureRecord: "picture", AnswerRecord: "answers",
    CorruptedRecord: "corrupted", WitnessRecord: "witness", OriginalRecord: "original", ProbeRecord: "checked",
    ConfidenceRecord: "confidence", FailedRecord: "failed",
}  # fmt: skip
R = TypeVar(
    "R", CleanRecord, CertificateRecord, AttackRecord, DrawRecord, NearnessRecord, QueryRecord, PictureRecord,
    AnswerRecord, CorruptedRecord, WitnessRecord, OriginalRecord, ProbeRecord, ConfidenceRecord, FailedRecord,
)  # fmt: skip

# By the class of a row: its values in the order of the table's columns. `astuple` copies each value, which takes longer
# than to write it.
VALUES_OF: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    kind: attrgetter(*(field.name for field in fields(kind))) for kind in TABLE_OF
}
