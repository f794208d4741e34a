"""Stored predictions and adversarial examples, judged again by a model that somebody brings.

It tells apart two things that a wrong verdict can mean: the evidence was changed, or this is another model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from robustkit.classifier import rejection
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import checked_batch
from robustkit.classifier.session import Session
from robustkit.data import Dataset, pick
from robustkit.data.eight_bits import EightBitImages
from robustkit.errors import UserError, unknown
from robustkit.evaluation.answers import Probes
from robustkit.evaluation.remeasuring import GivenFeatures, Remeasured, remeasured
from robustkit.evidence.pictures import load_pictures
from robustkit.evidence.rows import CleanRecord
from robustkit.evidence.store import Store
from robustkit.evidence.witnesses import KeptWitness, kept_witnesses
from robustkit.models.fingerprint import fingerprint
from robustkit.statistics.randomized_smoothing import ABSTAINS

_AT_ONCE = 64


@dataclass(frozen=True)
class Rejudged:
    """What a given model says about the evidence of one model of a run."""

    model: str
    difference: str  # why it is another model than that of the run; empty for the same one
    clean: int  # images whose clean prediction was asked again
    clean_wrong: tuple[int, ...]  # those where it is another one
    examples: int  # stored adversarial examples
    not_broken: tuple[int, ...]  # images of which an example does not mislead the model, or not to the stored class
    other_images: tuple[int, ...]  # of which the stored clean image is not that of the data
    distances: Remeasured  # of the examples in a threat of features


class _Example(NamedTuple):
    sample: int
    label: int
    prediction: int
    x: Tensor
    x_adv: Tensor


class RunImages(NamedTuple):
    """The data of a run as its models got them, and the numbers of its images."""

    data: Dataset
    ids: Sequence[int]


def same_data(identity: Mapping[str, Any], data: Dataset) -> RunImages:
    """The images of a run: those of `data`, or those rounded to 8 bits where one of the run's models is a server.

    Raises:
        UserError: the data are others than those of the run.
    """
    given, count = identity["dataset"], identity["n"]
    ids = pick(len(data), count) if count <= len(data) else []
    same = (each for each in (data, EightBitImages(data)) if ids and each.fingerprint(ids) == given["sha256"])
    found = next(same, None)
    if found is None:
        raise UserError(
            f"The run is about {count} images of {given['name']} {given['split']}, and these data "
            f"({data.name} {data.split}) do not have the same ones; give --dataset, --split and the like as when it "
            "was made."
        )
    return RunImages(found, ids)


def matched(identity: Mapping[str, Any], classifiers: Sequence[Classifier]) -> list[tuple[str, Classifier]]:
    """Each given model with the name of that of the run which it is compared with.

    Raises:
        UserError: a name is none of the run's.
    """
    names = [entry["name"] for entry in identity["models"]]
    if len(names) == len(classifiers) == 1:
        return [(names[0], classifiers[0])]
    for each in classifiers:
        if each.name not in names:
            raise unknown("model of the run", each.name, names)
    return [(each.name, each) for each in classifiers]


def judged_by_draws(manifest: Mapping[str, Any], name: str) -> bool:
    """Whether a model of a run is smoothed or randomized: judged by new draws, it may say something else."""
    entries = {entry["name"]: entry for entry in manifest["identity"]["models"]}
    return "smoothing" in entries[name] or name in manifest.get("randomized", {})


def rejudged(
    store: Store,
    name: str,
    classifier: Classifier,
    data: Dataset,
    ids: Sequence[int],
    features: GivenFeatures | None = None,
) -> Rejudged:
    """Ask a model for its predictions at the clean images and at the stored adversarial examples.

    A model that rejected images in the run does so here, too.

    Args:
        store: the evidence.
        name: of the run's model.
        classifier: the model that was given.
        data: of the run.
        ids: numbers of the run's images.
        features: the network whose features attacks of the run compared, unless they are the model's own.
    """
    identity = store.manifest()["identity"]
    entry = next(each for each in identity["models"] if each["name"] == name)
    classifier = replace(classifier, rejects=bool(entry.get("rejects")))
    difference = _difference(store, entry, classifier, Probes(data, ids))
    clean = store.clean(name)
    images, _ = checked_batch(data, ids[:_AT_ONCE])
    given = classifier.input_format()
    examples, not_broken, other_images = 0, set[int](), set[int]()
    with classifier.session(given.moved(images), identity["seed"]) as session:
        clean_wrong = list(_wrong_predictions(session, clean, data))
        for part in _parts(_examples(store, name)):
            examples += len(part)
            other_images |= _other_images(part, data)
            not_broken |= _not_broken(session, part)
        distances = Remeasured(name) if difference else remeasured(store, name, session, features)
    wrong, moved = tuple(sorted(not_broken)), tuple(sorted(other_images))
    return Rejudged(name, difference, len(clean), tuple(sorted(clean_wrong)), examples, wrong, moved, distances)


def _difference(store: Store, entry: Mapping[str, Any], classifier: Classifier, probes: Probes) -> str:
    if list(classifier.bounds) != entry["bounds"]:
        return f"its pixels lie in {list(classifier.bounds)}, not in {entry['bounds']}"
    record = store.answer("model", entry["name"])
    agrees = record is not None and probes.agrees(record, classifier)
    if fingerprint(classifier.model) != entry["sha256"]:
        alike = ", although it answers the same to some of the run's images" if agrees else ""
        return f"its weights, settings or code differ (SHA-256){alike}"
    return "" if record is None or agrees else "its answers to the run's images differ"


def _examples(store: Store, name: str) -> Iterator[_Example]:
    """All examples that were kept; of a run that kept none, those among its pictures."""
    kept = False
    for each in kept_witnesses(store, name):
        kept = True
        yield _of_witness(each)
    if kept:
        return
    for picture in load_pictures(store):
        if picture.model == name and picture.adv_pred not in (picture.label, ABSTAINS):
            pixels = (torch.from_numpy(np.array(part)) for part in (picture.x, picture.x_adv))
            yield _Example(picture.sample, picture.label, picture.adv_pred, *pixels)


def _of_witness(witness: KeptWitness) -> _Example:
    pixels = (torch.from_numpy(np.array(part)) for part in (witness.x, witness.x_adv))
    return _Example(witness.row.sample, witness.label, witness.row.adv_pred, *pixels)


def _parts(examples: Iterator[_Example]) -> Iterator[list[_Example]]:
    part: list[_Example] = []
    for each in examples:
        part.append(each)
        if len(part) == _AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _wrong_predictions(session: Session, clean: Mapping[int, CleanRecord], data: Dataset) -> Iterator[int]:
    numbers = sorted(clean)
    for start in range(0, len(numbers), _AT_ONCE):
        part = numbers[start : start + _AT_ONCE]
        x, y = checked_batch(data, part)
        labels = predictions(session, session.input.moved(x), [clean[number].pred for number in part])
        for number, label, true in zip(part, labels, y.tolist(), strict=True):
            if label != clean[number].pred or clean[number].label != true:
                yield number


def _not_broken(session: Session, part: Sequence[_Example]) -> set[int]:
    points = session.input.moved(torch.stack([each.x_adv for each in part]))
    labels = predictions(session, points, [each.prediction for each in part])
    return {
        each.sample for each, label in zip(part, labels, strict=True)
        if label != each.prediction or label == each.label
    }  # fmt: skip


def _other_images(part: Sequence[_Example], data: Dataset) -> set[int]:
    x, y = data.batch([each.sample for each in part])
    return {
        each.sample for each, image, label in zip(part, x, y.tolist(), strict=True)
        if each.label != label or not each.x.to(image.dtype).equal(image)
    }  # fmt: skip


def predictions(session: Session, points: Tensor, stored: Sequence[int]) -> list[int]:
    """The predictions; where rounding could decide between one and the stored one, that is the stored one."""
    scores = session.oracle.judge(points)
    labels = (rejection.labels(scores) if session.rejects else scores.argmax(1)).tolist()
    return [
        before if label != before and not session.oracle.sure(point, row, label, before) else label
        for point, row, label, before in zip(points, scores, labels, stored, strict=True)
    ]
