"""A request resolved: data and models loaded, the plan made, everything checked that can be before work begins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from robustkit.checks.check import reaches
from robustkit.checks.facts import Level
from robustkit.classifier.access import is_metered, require_access
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothed import check_queryable
from robustkit.common_corruptions.baseline import Baseline, chosen_baseline
from robustkit.common_corruptions.choice import corruption_suite
from robustkit.common_corruptions.suite import CorruptionSuite
from robustkit.data import Dataset, given_dataset, load_dataset, pick
from robustkit.data.eight_bits import EightBitImages
from robustkit.data.examples import with_examples
from robustkit.data.masks import masks_of_data
from robustkit.errors import UntrainedError, UserError
from robustkit.evaluation.classifiers import attacked_classifiers, listed, surrogate_classifiers
from robustkit.evaluation.plan import Plan, plan
from robustkit.evaluation.request import Data, EvaluationRequest
from robustkit.evaluation.shard import Shard
from robustkit.evaluation.threats import threats_of
from robustkit.host.environment import chosen_device
from robustkit.host.processes import own_device
from robustkit.primitives.given_examples import GivenExamples
from robustkit.primitives.mask import Mask
from robustkit.primitives.protocol import Attack
from robustkit.primitives.threat import exact, is_minimum


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
    precision: float | None = None  # as in the request; the run takes as many of `ids` as it needs
    suite: CorruptionSuite | None = None  # corrupted images, beside the attacks
    baseline: Baseline | None = None  # of corruption errors
    keep_adversarial: bool = False
    declared: tuple[str, ...] = ()  # conditions on the results
    checks: Level = "quick"
    shard: Shard | None = None  # which of `ids` this process works on; None for all
    only: tuple[int, ...] | None = None  # images of one lane of a worker process
    origin: EvaluationRequest | None = None  # what worker processes resolve again; None without them
    fills_memory: bool = False  # whether rows in flight grow from `slots` on while a GPU has memory for more

    @property
    def share(self) -> tuple[int, ...]:
        """The images that this process works on, in the order of work."""
        if self.only is not None:
            return self.only
        return self.ids if self.shard is None else self.shard.share(self.ids)

    @property
    def asked(self) -> list[tuple[str, Classifier]]:
        """The models whose answers decide results, each with its role; servers not: their answers are all kept."""
        attacked = [("model", each) for each in self.classifiers]
        attacked += [("surrogate", each) for each in self.surrogates]
        return [(role, each) for role, each in attacked if not is_metered(each.model)]

    def folder(self, out: Path) -> Path:
        """The run folder: `out`, or the shard's own folder in it."""
        return out if self.shard is None else out / self.shard.folder


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
    device = device if request.shard is None else own_device(device)
    ids = tuple(pick(len(data), request.samples))
    attacks = with_examples(listed(request.attacks), data, ids)
    norms, radii = _threat_texts(attacks, listed(request.norm), [str(value) for value in listed(request.eps)])
    _check_divisible(request, len(ids))
    suite = _suite(request, data)
    if suite is not None and not attacks:
        _require_no_threat(request)
        threats, early = [], Plan((), ())
    else:
        threats = threats_of(norms, radii, data.threats, _mask(request, attacks, data))
        early = plan(attacks, threats, audit=request.audit)  # before the models, which take longer
    _check_images(early, data, ids)
    if request.precision is not None:
        _check_stoppable(early)
    classifiers, surrogates = _models(request, data, device, may_train=may_train)
    planned = plan(attacks, threats, [each.name for each in surrogates], request.audit) if threats else early
    if any(each.smoothing is not None for each in classifiers):
        check_smoothable(planned)
    check_access(planned, classifiers, surrogates)
    servers = [each.name for each in (*classifiers, *surrogates) if is_metered(each.model)]
    if servers:
        data = EightBitImages(data)
    if servers and request.in_workers:
        asked = "--backend" if request.workers is None else "--workers"
        raise UserError(
            f"One process sends all requests to {servers[0]} and counts them; leave out {asked}, and send several at "
            "once with --parallel N."
        )
    if servers and reaches("standard", request.level):
        raise UserError(
            f"Checks of the level {request.level} make thousands of passes, each a request to {servers[0]}; leave it "
            "at quick, and add attacks."
        )
    slots = request.batch_size if isinstance(request.batch_size, int) else None
    baseline = None
    if request.corruption_baseline is not None:
        if suite is None:
            raise UserError("A baseline is for corruption errors; add corruptions, for example generated.")
        baseline = chosen_baseline(request.corruption_baseline, [each.name for each in classifiers], suite.cells)
    return Evaluation(
        classifiers, surrogates, data, ids, planned, request.seed, slots, device, request.precision, suite, baseline,
        request.keep_adversarial, tuple(request.declared), request.level, request.own_shard,
        origin=request if request.in_workers else None, fills_memory=request.batch_size == "max",
    )  # fmt: skip


def check_smoothable(planned: Plan) -> None:
    """Check that a plan can be run on smoothed classifiers.

    Raises:
        UserError: nothing can be certified in one of the norms, an attack reads a layer of a single pass, or an audit
            is asked for.
    """
    if planned.audit is not None:
        raise UserError("AutoAttack, which --audit runs, is not made for smoothed models; leave --audit out.")
    for threat in planned.threats:
        if threat.ball_name not in ("Linf", "L2", "L1"):
            name = threat.ball_name
            raise UserError(
                f"A smoothed classifier is certified in L2, L1 and Linf, and in {name} nothing is; leave {name} out."
            )
    if any(math.isinf(threat.eps) for threat in planned.threats):
        raise UserError("A smoothed classifier is attacked at a radius; leave the minimum out.")
    for each in planned.attacks:
        if each.column.surrogate is None:
            check_queryable(each.attack)


def _models(
    request: EvaluationRequest, data: Dataset, device: torch.device, *, may_train: bool
) -> tuple[tuple[Classifier, ...], tuple[Classifier, ...]]:
    """The attacked models and the surrogates. A shard trains none: all of them would, and might get other weights."""
    alone = request.own_shard is None
    may_train = may_train and alone
    try:
        attacked = attacked_classifiers(request, data, device, may_train=may_train)
        surrogates = surrogate_classifiers(request, data, device, may_train=may_train)
        return attacked, tuple(each.on(attacked[0].device) for each in surrogates)
    except UntrainedError as error:
        if alone:
            raise
        raise UserError(
            f"{str(error).split(';')[0]}, and shards train nothing; run the command once without --shard and with -n 1."
        ) from None


def _check_divisible(request: EvaluationRequest, images: int) -> None:
    """Check that an evaluation is the sum of its images, so that a process may work on some of them.

    Raises:
        UserError: something is asked for that depends on all images.
    """
    shard = request.own_shard
    if shard is None:
        return
    if shard.count > images:
        raise UserError(f"There are {images} images, too few for {shard.count} shards; take fewer shards.")
    later = "merge the shards, and then repeat the command without --shard and with --out of the merged run."
    if request.audit is not None:
        raise UserError(f"An audit draws from the survivors of all images; leave --audit out, {later}")
    if request.level not in ("none", "quick"):
        raise UserError(f"The passes of --checks {request.level} need all images; leave --checks out, {later}")
    if request.precision is not None:
        raise UserError("A precision needs the images of all shards; leave out --precision or --shard.")


def check_access(planned: Plan, classifiers: Sequence[Classifier], surrogates: Sequence[Classifier]) -> None:
    """Check that every attack gets from every model that it queries what it needs.

    Raises:
        UserError: a model that only answers is asked for gradients, or one that gives labels for scores; or a model
            lacks a layer whose gradient is replaced.
    """
    for each in planned.attacks:
        surrogate = each.column.surrogate
        queried = classifiers if surrogate is None else [one for one in surrogates if one.name == surrogate]
        for classifier in queried:
            require_access(classifier.name, classifier.model, each.attack, classifier.bpda)


def _check_stoppable(planned: Plan) -> None:
    """Check that a plan has accuracies that become more precise with more images, and nothing that depends on n."""
    if planned.audit is not None:
        raise UserError(
            "An audit draws from the survivors of a fixed number of images; leave out --audit or --precision."
        )
    if all(math.isinf(threat.eps) for threat in planned.threats):
        raise UserError("A precision is about the accuracy at a radius; give one with --eps, or leave out --precision.")


def _suite(request: EvaluationRequest, data: Dataset) -> CorruptionSuite | None:
    chosen, severities = listed(request.corruptions), listed(request.severities)
    if not chosen and severities:
        raise UserError("Severities are for corruptions; add corruptions, for example generated.")
    return corruption_suite(chosen, data, request.seed, severities) if chosen else None


def _require_no_threat(request: EvaluationRequest) -> None:
    """Refuse what is about attacks where there are none: it would be ignored."""
    values = {
        "norm": request.norm, "eps": request.eps, "mask": request.mask, "audit": request.audit,
        "surrogates": request.surrogates,
    }  # fmt: skip
    given = [name for name, value in values.items() if value is not None and value not in ((), [], "")]
    if given:
        raise UserError(f"{given[0]} is for attacks, and none is given; name one, for example default.")


def _check_fit(planned: Plan, size: Sequence[int]) -> None:
    """Check that no radius that is a number of pixels is larger than the images."""
    largest = {"patch": max(size), "translation": max(size), "frame": -(-min(size) // 2)}
    for threat in planned.threats:
        most = largest.get(threat.ball_name, math.inf)
        if most < threat.eps < math.inf:
            height, width = size
            raise UserError(
                f"{threat.ball_name} {threat.eps_text} is larger than an image of {height} x {width} pixels; give an "
                f"--eps of at most {most}."
            )


def _check_images(planned: Plan, data: Dataset, ids: Sequence[int]) -> None:
    """Check that the images have every threat model: a patch needs a height and a width, a mask their size.

    And that no ball of L2 or L1 holds every image, as with a radius in units of pixels from 0 to 255.
    """
    if all(threat.mask is None and threat.ball_name in ("Linf", "L0") for threat in planned.threats):
        return
    x, _ = data.batch(ids[:1])
    for each in planned.attacks:
        each.attack.check_images(tuple(x.shape[1:]))
    _check_fit(planned, x.shape[-2:])
    values = x[0].numel()
    farthest = {"L2": values**0.5, "L1": float(values)}
    for threat in planned.threats:
        apart = farthest.get(threat.ball_name, math.inf)
        if apart < threat.eps < math.inf:
            raise UserError(
                f"No two images of {values} values in [0, 1] are farther apart than {apart:g} in {threat.ball_name}, "
                f"and eps is {threat.eps_text}; give it in units of pixels in [0, 1]."
            )


def _mask(request: EvaluationRequest, attacks: Sequence[Any], data: Dataset) -> Mask | None:
    """The mask of the request; attack objects bring their own, which must be the same."""
    own = {attack.mask for attack in attacks if isinstance(attack, Attack) and attack.mask is not None}
    mask = masks_of_data(request.mask, data) if request.mask is not None else next(iter(own), None)
    if len({*own, mask}) > 1:
        raise UserError("These attacks have different masks; give the same one to all, or only mask=.")
    return mask


def _dataset(dataset: Data) -> Dataset:
    return load_dataset(dataset) if isinstance(dataset, str) else given_dataset(dataset)


def _threat_texts(attacks: Sequence[Any], norms: list[str], radii: list[str]) -> tuple[list[str], list[str]]:
    """Norms and radii; attack objects bring their own threat model unless one is given."""
    wrong = [attack for attack in attacks if not isinstance(attack, (str, Attack, GivenExamples))]
    if wrong:
        what = f"the class {wrong[0].__name__}" if isinstance(wrong[0], type) else type(wrong[0]).__name__
        raise UserError(f"An attack is a name or an attack object such as PGD(eps='8/255'), not {what}.")
    objects = [attack for attack in attacks if isinstance(attack, Attack)]
    given = [text.rpartition(":")[2] for text in radii]
    for each in objects if radii else ():
        if each.ball.eps not in map(_number, given):
            raise UserError(
                f"{type(each).__name__} has a radius of its own, {each.eps}, and eps= is {', '.join(radii)}; leave out "
                "eps=, or give the attack by its name."
            )
    if not objects or norms or radii:
        return norms, radii
    if len(objects) < len(attacks) or len({(each.ball.norm, each.ball.eps) for each in objects}) > 1:
        raise UserError("These attacks have different threat models; say which with norm= and eps=.")
    return [objects[0].ball.norm], [str(objects[0].eps)]


def _number(radius: str) -> float:
    return math.inf if is_minimum(radius) else float(exact(radius))
