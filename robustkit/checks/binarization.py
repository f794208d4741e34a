"""The binarization test: whether the run's own attacks find an error that is known to exist.

Zimmermann, Brendel, Tramer & Carlini 2022, arXiv:2206.13991. For each image a new linear head with two classes is put
on the network's last features: class 0 for random points inside the ball, class 1 for a planted point on its surface.
An attack that works finds class 1. Where it does not, it is too weak for these features, whatever it has left standing.
Ours differs: the head is a support vector machine without slack, and one image is one row of evidence.
Bad at: networks without a linear head, and fewer features than points that must be separated (counted as failures).
"""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustkit.checks.check import Finding, Rule, graded, not_run
from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.logits import logits_of
from robustkit.classifier.session import Session
from robustkit.engine.jobs import Job, Outcome, loss_targets_of
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.models.preprocessing import network_in
from robustkit.primitives import noise
from robustkit.primitives.ball import Ball
from robustkit.primitives.protocol import Attack, TrialCost
from robustkit.primitives.threat import ball
from robustkit.statistics.intervals import proportion

_COUNT = 12
_INNER = 200  # points inside the ball
_INSIDE = 0.95  # of the radius
_RANDOM = 100  # points that show how easy the problem is
_CLOSE = 0.99  # how near the boundary is to the planted point, of the way from the inner points
_PASS = 0.95  # the paper's share of problems that a sound attack solves
_EASY = 0.5  # of the problems solved by random points: then they say nothing
_STREAM = 0x42494E41
# What the value of a row says.
_TOO_EASY, _NO_PROBLEM = 1.0, 2.0  # random points solve it; there is no such head


class SeparatingHead(NamedTuple):
    """A head that separates one planted point from the points inside the ball."""

    weight: NDArray[np.float64]  # [F]
    bias: float


@dataclass(frozen=True)
class LinearHead:
    """The network's last linear layer, whose output are the logits."""

    name: str
    features: int


class BinarizationProbe:
    """For each image, whether the run's attacks find the planted error."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        for place in last_radii(facts) if _names(facts) else ():
            yield Wanted(place, _probe(facts), facts.drawn(facts.correct, _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        # One wrong class is left: there are no more targets than that.
        each = [(attack.restarts, attack.cost) for attack in _searching(attacks(wanted.place))]
        points = _INNER + 2 + 2 + _RANDOM
        return TrialCost(
            points + sum(trials * cost.forwards for trials, cost in each),
            sum(trials * cost.backwards for trials, cost in each),
        )

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        batch, threat = bench.images(wanted.images), ball(wanted.place.norm, wanted.place.eps_text)
        head = linear_head(bench.classifier.model, bench.session.input.fed(batch.x[:2]))
        attacks = _searching(bench.attacks(wanted.place))
        for number, x in zip(batch.numbers, batch.x, strict=True):
            if head is None:
                yield bench.record(wanted, number, False, _NO_PROBLEM)
            else:
                yield self._row(bench, wanted, number, x, head, threat, attacks)

    def _row(
        self, bench: ProbeBench, wanted: Wanted, number: int, x: Tensor, head: LinearHead, threat: Ball,
        attacks: Sequence[Attack],
    ) -> ProbeRecord:  # fmt: skip
        key = noise.keys(bench.facts.seed + _STREAM, torch.tensor([number], device="cpu"))
        inner, planted, random = _points(threat, x, key)
        points = torch.cat([inner, planted])
        problem = _solved(_features(bench.classifier, head, points), len(inner))
        if problem is None:
            return bench.record(wanted, number, False, _NO_PROBLEM, len(points))
        with_head = replace(bench.classifier, model=_binarized(bench.classifier.model, head, problem), mean=None,
                            std=None, rejects=False)  # fmt: skip
        if not _has_two_classes(with_head, planted):  # a forward that was put into an object is not copied with it
            return bench.record(wanted, number, False, _NO_PROBLEM, len(points) + 1)
        with with_head.session(x.unsqueeze(0), bench.facts.seed) as session:
            if int(session.judge(planted).argmax(1)) != 1 or int(session.judge(x.unsqueeze(0)).argmax(1)) != 0:
                return bench.record(wanted, number, False, _NO_PROBLEM, len(points) + 2)
            easy = bool((session.judge(random).argmax(1) == 1).any())
            found, passes = False, [len(points) + 2 + len(random), 0]
            for attack in attacks:
                outcome = _attacked(session, attack, number, x, bench.facts.seed)
                if outcome is not None:
                    passes = [passes[0] + outcome.forwards, passes[1] + outcome.backwards]
                    found = outcome.success
                if found:
                    break
        return bench.record(wanted, number, found, _TOO_EASY if easy else 0.0, *passes)


@torch.no_grad()
def _has_two_classes(classifier: Classifier, points: Tensor) -> bool:
    return logits_of(classifier.model(classifier.input_format().fed(points)), points).shape[1] == 2


def last_radii(facts: ModelFacts) -> list[RunThreat]:
    """The largest radius of each norm that the test knows, if the model has one answer and its own attacks."""
    if not facts.deterministic or facts.transferred:
        return []
    return list({place.norm: place for place in facts.searchable if place.norm in ("Linf", "L2")}.values())


def linear_head(model: nn.Module, points: Tensor) -> LinearHead | None:
    """The linear layer whose output is the model's; None if there is no such layer."""
    network, seen = network_in(model), dict[str, tuple[int, Tensor]]()
    hooks = [
        module.register_forward_hook(
            lambda module, given, output, name=name: seen.update({name: (given[0].shape[-1], output)})
        )
        for name, module in network.named_modules() if name and type(module) is nn.Linear
    ]  # fmt: skip
    try:
        with torch.no_grad():
            logits = logits_of(model(points), points)
    finally:
        for hook in hooks:
            hook.remove()
    for name, (width, output) in seen.items():
        if output.shape == logits.shape and torch.equal(output, logits):
            return LinearHead(name, width)
    return None


def _points(threat: Ball, x: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`[_INNER + 1, *S]` the image and points inside the ball, one point on its surface, and others in the ball."""
    several = torch.cat(
        [noise.keys(int(key), torch.tensor([number], device="cpu")) for number in range(_INNER + _RANDOM)]
    ).to(x.device)
    still = x.expand(_INNER, *x.shape)
    smaller = replace(threat, eps=_INSIDE * threat.eps)
    inner = smaller.project_exact(still, smaller.random(still, several[:_INNER], 0))
    one = x.unsqueeze(0)
    surface = threat.climb(one, one, noise.normal(key.to(x.device), 1, x.shape), threat.eps)
    others = threat.climb(
        x.expand(_RANDOM, *x.shape), x.expand(_RANDOM, *x.shape), noise.normal(several[_INNER:], 2, x.shape), threat.eps
    )
    return torch.cat([one, inner]), threat.project_exact(one, surface), others


@torch.no_grad()
def _features(classifier: Classifier, head: LinearHead, points: Tensor) -> NDArray[np.float64]:
    """`[n, F]` the inputs of the head."""
    module, inputs = network_in(classifier.model).get_submodule(head.name), list[Tensor]()
    hook = module.register_forward_pre_hook(lambda module, given: inputs.append(given[0].detach().double().cpu()))
    try:
        classifier.model(classifier.input_format().fed(points))
    finally:
        hook.remove()
    values: NDArray[np.float64] = inputs[-1].numpy()
    return values


def _solved(features: NDArray[np.float64], inner: int) -> SeparatingHead | None:
    """The head that separates the last point from the others, its boundary moved close to it; None if there is none."""
    from sklearn.svm import SVC

    centre, scale = features[:inner].mean(0), max(float(features.std()), 1e-12)
    labels = np.array([0] * inner + [1] * (len(features) - inner))
    machine: Any = SVC(kernel="linear", C=1e8).fit((features - centre) / scale, labels)
    weight = machine.coef_[0] / scale
    scores = (features - centre) @ weight
    gap = scores[inner:].min() - scores[:inner].max()
    if not math.isfinite(gap) or gap <= 1e-6 * max(1.0, float(np.abs(scores).max())):
        return None
    boundary = scores[:inner].max() + _CLOSE * gap
    return SeparatingHead(weight / gap, float(-(centre @ weight + boundary) / gap))


def _binarized(model: nn.Module, head: LinearHead, problem: SeparatingHead) -> nn.Module:
    """A copy of the model with two classes."""
    copied = copy.deepcopy(model)
    network = network_in(copied)
    old = network.get_submodule(head.name)
    assert isinstance(old, nn.Linear)
    new = nn.Linear(head.features, 2, device=old.weight.device, dtype=old.weight.dtype)
    with torch.no_grad():
        weight = torch.from_numpy(problem.weight).to(old.weight)
        new.weight.copy_(torch.stack([-weight, weight]) / 2)
        new.bias.copy_(torch.tensor([-problem.bias, problem.bias], device="cpu").to(old.weight) / 2)
    parent, _, own = head.name.rpartition(".")
    setattr(network.get_submodule(parent), own, new.requires_grad_(False))
    return copied.eval()


def _attacked(session: Session, attack: Attack, number: int, x: Tensor, seed: int) -> Outcome | None:
    """The outcome of an attack; None if it cannot attack two classes."""
    job = Job(number, x, 0, loss_targets_of(attack, [1]))
    try:
        return next(iter(run(session, attack, [job], slots=1, seed=seed)))
    except UserError:
        return None


def _probe(facts: ModelFacts) -> str:
    """With the attacks that are tested: those of a run that grows are tested again."""
    return f"binarization of {', '.join(_names(facts))}"


def _names(facts: ModelFacts) -> list[str]:
    names = dict.fromkeys(str(entry["name"]).partition("/")[0] for entry in facts.attacks)
    return [name for name in names if name != "audit" and name not in facts.examples]


def _searching(attacks: Iterable[Attack]) -> list[Attack]:
    """Those that look for a point: given examples cannot find a planted one."""
    return [attack for attack in attacks if not attack.made_elsewhere]


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for the largest radius of each norm."""
    places = last_radii(facts)
    if not _names(facts):
        yield Finding("", "not_applicable", "The run judges given examples alone, and no attack searched.")
        return
    if not places:
        yield Finding("", "not_applicable", "This check is for deterministic models under Linf and L2 with a radius.")
    for place in places:
        rows = facts.probed(place, _probe(facts), facts.drawn(facts.correct, _COUNT))
        if rows is None:
            yield not_run(place.text)
        else:
            yield _finding(place, rows)


def _finding(place: RunThreat, rows: list[ProbeRecord]) -> Finding:
    problems = [row for row in rows if row.value != _NO_PROBLEM]
    missed = tuple(row.sample for row in problems if not row.outcome)
    easy = sum(row.value == _TOO_EASY for row in problems)
    numbers = {"problems": len(problems), "missed": len(missed), "easy": easy, "without": len(rows) - len(problems)}
    if 2 * len(problems) < len(rows) or not rows:
        text = "The model has no linear head whose features separate a planted point from points inside the ball."
        return Finding(place.text, "not_applicable", text, (), numbers)
    high = proportion(len(problems) - len(missed), len(problems)).high
    text = (
        f"the attacks of this run missed {len(missed)} of {len(problems)} adversarial examples that were planted "
        f"within the radius; in {easy} of these problems, random points alone found one."
    )
    status = graded(failed=high < _PASS, warning=bool(missed) and high >= _PASS)
    if easy > _EASY * len(problems) and status == "ok":
        text = "The test says nothing here: random points alone find the planted examples."
        return Finding(place.text, "not_applicable", text, (), numbers)
    return Finding(place.text, status, text, missed, numbers)


RULE = Rule(
    name="binarization",
    title="The attacks find planted adversarial examples",
    level="full",
    severity="invalidating",
    note="the attacks miss planted adversarial examples",
    remedy="The attacks are too weak for this model: take robustkit evaluate --attack default, or robustkit diagnose.",
    judge=judge,
    probes=(BinarizationProbe(),),
)
