"""A request resolved: data and models loaded, the plan made, everything checked that can be before work begins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothed import check_queryable
from robustkit.data import Dataset, given_dataset, load_dataset, pick
from robustkit.errors import UserError
from robustkit.evaluation.classifiers import attacked_classifiers, listed, surrogate_classifiers
from robustkit.evaluation.plan import Plan, plan
from robustkit.evaluation.request import Data, EvaluationRequest
from robustkit.evaluation.threats import threats_of
from robustkit.host.environment import chosen_device
from robustkit.primitives.protocol import Attack
from robustkit.primitives.threat import is_rendered


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that one evaluation needs."""

    classifiers: tuple[Classifier, ...]
    surrogates: tuple[Classifier, ...]  # queried in the classifiers' place by transfer attacks
    data: Dataset
    ids: tuple[int, ...]  # numbers of the images, in the order of work
    plan: Plan
    seed: int
    slots: int | None  # rows in flight, None for the usual number
    device: torch.device


def resolve(request: EvaluationRequest, *, may_train: bool = True) -> Evaluation:
    """The evaluation that a request asks for.

    Raises:
        UntrainedError: a model must be trained first, and `may_train` is false.
        UserError: something cannot be done as asked; the sentence names the fix.
    """
    data = _dataset(request.dataset)
    if not len(data):
        raise UserError(f"The data set {data.name} is empty; there is nothing to evaluate.")
    device = chosen_device(request.device)
    attacks = listed(request.attacks)
    norms, radii = _threat_texts(attacks, listed(request.norm), [str(value) for value in listed(request.eps)])
    threats = threats_of(norms, radii, data.threats)
    plan(attacks, threats, audit=request.audit)  # before the models, which take longer
    classifiers = attacked_classifiers(request, data, device, may_train=may_train)
    surrogates = surrogate_classifiers(request, data, device, may_train=may_train)
    planned = plan(attacks, threats, [each.name for each in surrogates], request.audit)
    if any(each.smoothing is not None for each in classifiers):
        check_smoothable(planned)
    slots = None if request.batch_size == "auto" else request.batch_size
    ids = tuple(pick(len(data), request.samples))
    return Evaluation(classifiers, surrogates, data, ids, planned, request.seed, slots, device)


def check_smoothable(planned: Plan) -> None:
    """Check that a plan can be run on smoothed classifiers.

    Raises:
        UserError: nothing can be certified in one of the norms, an attack reads a layer of a single pass, or an audit
            is asked for.
    """
    if planned.audit is not None:
        raise UserError("AutoAttack, which --audit runs, is not made for smoothed models; leave --audit out.")
    if any(threat.norm == "L0" for threat in planned.threats):
        raise UserError("A smoothed classifier is certified in L2, L1 and Linf, and in L0 nothing is; leave L0 out.")
    if any(is_rendered(threat.norm) for threat in planned.threats):
        raise UserError("A smoothed classifier is certified in L2, L1 and Linf; leave threats that are no norm out.")
    if any(math.isinf(threat.eps) for threat in planned.threats):
        raise UserError("A smoothed classifier is attacked at a radius; leave the minimum out.")
    for each in planned.attacks:
        if each.column.surrogate is None:
            check_queryable(each.attack)


def _dataset(dataset: Data) -> Dataset:
    return load_dataset(dataset) if isinstance(dataset, str) else given_dataset(dataset)


def _threat_texts(attacks: Sequence[Any], norms: list[str], radii: list[str]) -> tuple[list[str], list[str]]:
    """Norms and radii; attack objects bring their own threat model unless one is given."""
    wrong = [attack for attack in attacks if not isinstance(attack, (str, Attack))]
    if wrong:
        what = f"the class {wrong[0].__name__}" if isinstance(wrong[0], type) else type(wrong[0]).__name__
        raise UserError(f"An attack is a name or an attack object such as PGD(eps='8/255'), not {what}.")
    objects = [attack for attack in attacks if isinstance(attack, Attack)]
    if not objects or norms or radii:
        return norms, radii
    if len(objects) < len(attacks) or len({(each.ball.norm, each.ball.eps) for each in objects}) > 1:
        raise UserError("These attacks have different threat models; say which with norm= and eps=.")
    return [objects[0].ball.norm], [str(objects[0].eps)]
