"""Fit one perturbation to many images: the loop of universal attacks.

It alone queries the model, draws mini-batches and counts passes. What rows share is added up in float64, row after row
on the CPU, so that the number of rows in flight does not change a bit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from typing_extensions import Self

from robustkit.classifier.access import black_box_in, require_layers
from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.classifier.memory import in_parts
from robustkit.classifier.sanity_checks import changed_since_start, checked_images, checked_labels, checked_model
from robustkit.classifier.session import Session
from robustkit.data.tensors import Array, tensor_of
from robustkit.engine.fit_checkpoint import FitCheckpoint, fit_identity
from robustkit.engine.fitted import FittedPerturbation
from robustkit.engine.verdicts import check_finite
from robustkit.errors import UserError
from robustkit.host.progress import shown_progress
from robustkit.host.warned import warn
from robustkit.models.fingerprint import function_fingerprint
from robustkit.paths import user_path
from robustkit.primitives import noise, registry
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials
from robustkit.primitives.rounding import Bounds
from robustkit.primitives.universal import UniversalAttack, UniversalState

_ORDER = 1 << 42  # apart from the seeds of places and of clean images
_COMPARED = 32  # images whose answers a checkpoint keeps
_UNMOVED = (
    "The fit did not change the perturbation, so its numbers say nothing about robustness: every gradient was zero "
    "(`robustkit diagnose` names the layer and the remedy, such as --bpda LAYER), or eps is 0."
)


def fit_universal(
    model: nn.Module | Classifier,
    x: Array,
    y: Array,
    method: UniversalAttack | str,
    *,
    eps: float | str | None = None,
    norm: str = "Linf",
    target: int | None = None,
    bounds: Bounds = (0.0, 1.0),
    batch_size: int = 64,
    seed: int = 0,
    progress: bool | None = False,
    checkpoint: str | Path | None = None,
    keep_checkpoint: bool = False,
) -> FittedPerturbation:
    """One perturbation for all images, fitted to those of `x` that the model classifies correctly.

    How well it works is for other images to say: `.judge(model, x_test, y_test)`.

    Args:
        model: takes images in `bounds`, returns logits. Its modes, buffers, `requires_grad` and `.grad` are restored,
            and so are the random states of torch, numpy and Python.
        x: `[N, *S]` float images.
        y: `[N]` true classes.
        method: such as `Universal(eps="8/255")` or `AdversarialPatch()`, or a text such as "universal:steps=500".
        eps: radius of a method given as a text, in units of pixels scaled to [0, 1].
        norm: of a method given as a text.
        target: class that images must be taken for; None accepts any wrong class. Images of it are left out.
        bounds: range of valid values; a `Classifier` has its own.
        batch_size: rows in flight. On a CPU it does not change a bit of the result; the attack's `batch` does.
        seed: of the order of the images, and of all places.
        progress: show a bar on standard error; None shows it in a terminal only.
        checkpoint: a file that is written every half minute and removed at the end: after a kill, the same call goes
            on from there with the same bits. None keeps nothing.
        keep_checkpoint: write the finished fit to that file in place of removing it, so that the same call returns it
            at once until the caller has stored what comes of it.

    Raises:
        UserError: something about images, labels or model is wrong; the sentence names the fix.
    """
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, not {batch_size}.")
    attack = universal_attack_of(method, norm, eps)
    x, y = tensor_of(x, "The images"), tensor_of(y, "The labels")
    if x.dim() < 2:
        raise UserError(f"Images must be [N, *S], an axis for the images and others for values, not {list(x.shape)}.")
    classifier = as_classifier(model, bounds)
    if black_box_in(classifier.model) is not None:
        raise UserError(
            f"{classifier.name} gives no gradients, which {type(attack).__name__} needs; fit the perturbation to a "
            "network of yours, and judge it on this model: --judge-on NAME."
        )
    require_layers(classifier.name, classifier.model, classifier.bpda)
    images = classifier.place(checked_images(x.detach(), classifier.bounds))
    start = attack.init(tuple(images.shape[1:]))
    with ExitStack() as stack:
        session = stack.enter_context(classifier.session(images, seed))
        for warning in checked_model(classifier, session, images):
            warn(warning)
        clean = session.clean_verdicts(images, range(len(x)))
        y = checked_labels(y.cpu(), len(x), clean.class_scores.shape[1])
        fitted = _fitted_to(clean.labels == y, y, target, clean.class_scores.shape[1])
        watch = stack.enter_context(shown_progress(progress))
        size = min(attack.batch, len(fitted))
        watch.stage(f"{classifier.name} {type(attack).__name__.lower()}", attack.steps * size, 0)
        fit = _Fit(session, attack, images.cpu(), y, -1 if target is None else target, batch_size, seed)
        replaced = {layer: function_fingerprint(each) for layer, each in sorted(classifier.bpda.items())}
        settings = {"target": target, "bounds": classifier.bounds, "seed": seed, "eot": classifier.eot,
                    "bpda": replaced, "straight_through": classifier.straight_through,
                    "probabilities": classifier.probabilities, "smoothing": classifier.smoothing,
                    **({"rejects": True} if classifier.rejects else {})}  # fmt: skip
        identity = "" if checkpoint is None else fit_identity(
            classifier.model, attack, settings, {"x": images, "y": y})  # fmt: skip
        path, answers = None if checkpoint is None else user_path(checkpoint), clean.class_scores[:_COMPARED].cpu()
        kept = FitCheckpoint(path, identity, answers)
        state = kept.resumed(start)
        chosen = islice(mini_batches(seed, fitted, size), state.steps, attack.steps)
        watch.advance(size * state.steps, 1.0)
        for numbers in chosen:
            grad, broken = fit.gradient(state, numbers)
            state = attack.step(state, grad)
            watch.advance(size, 1 - broken)
            kept.keep(state)
        if keep_checkpoint:
            kept.keep(state, now=True)
        else:
            kept.remove()
        unmoved = _UNMOVED if torch.equal(state.perturbation, start.perturbation) else ""
        for warning in filter(None, [*changed_since_start(classifier, session), *fit.objective.faults, unmoved]):
            warn(warning)
    rows = attack.steps * size * attack.draws * session.oracle.cost.query
    perturbation = state.perturbation.detach()
    bounds, spent = classifier.bounds, sum(clean.forwards)
    return FittedPerturbation(
        attack, perturbation, target, bounds, seed, torch.tensor(fitted, device="cpu"), spent + rows, rows
    )


def universal_attack_of(method: object, norm: str, eps: float | str | None) -> UniversalAttack:
    """The universal attack that a caller gives as an object or as a text.

    Raises:
        UserError: there is no such attack, or not with this radius.
    """
    if isinstance(method, UniversalAttack):
        if eps is not None:
            raise UserError(f"{type(method).__name__} is built with its own radius, if it has one; leave out eps=.")
        return method
    if isinstance(method, str):
        return registry.build_universal(method, norm, eps)
    name = method.__name__ if isinstance(method, type) else type(method).__name__
    if isinstance(method, Attack):
        raise UserError(f"{name} attacks each image alone; use robustkit.attack, or give a universal attack.")
    raise UserError(f"A universal attack is a string such as 'universal:steps=250' or an object, not {name}.")


def mini_batches(seed: int, numbers: Sequence[int], size: int) -> Iterator[list[int]]:
    """Mini-batches of images without end: in each pass over the images another order, a function of the seed."""
    waiting: list[int] = []
    passes = 0
    while True:
        if len(waiting) < size:
            names = torch.tensor(list(numbers), dtype=torch.int64, device="cpu")
            order = noise.keys(seed + _ORDER, names, torch.full_like(names, passes)).argsort(stable=True)
            waiting += names[order].tolist()
            passes += 1
        yield waiting[:size]
        waiting = waiting[size:]


def _fitted_to(correct: Tensor, y: Tensor, target: int | None, classes: int) -> list[int]:
    """The numbers of the images that the perturbation is fitted to."""
    if target is not None and not 0 <= target < classes:
        raise UserError(f"The target class {target} is not a class of the model, which has 0 to {classes - 1}.")
    fitted = (correct if target is None else correct & (y != target)).nonzero().flatten().tolist()
    if not fitted:
        of = "" if target is None else f" of other classes than the target, {target},"
        raise UserError(f"The model classifies none of the images{of} correctly, so there is nothing to fit to.")
    return [int(number) for number in fitted]


@dataclass(frozen=True)
class _Objective(Attack):
    """What an oracle must know to answer a query: the loss whose gradient is asked for."""

    universal: UniversalAttack | None = None

    @property
    def cost(self) -> TrialCost:
        return TrialCost(1, 1)

    def init(self, trials: Trials) -> State:
        raise NotImplementedError

    def step(self, state: State, seen: Seen) -> State:
        raise NotImplementedError

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        assert self.universal is not None
        return self.universal.objective(logits, trials.y, trials.loss_target)

    @property
    def faults(self) -> tuple[str, ...]:
        return () if self.universal is None else self.universal.climbed.faults

    def with_built_in_loss(self) -> Self:
        if self.universal is None or self.universal.climbed.own is None:
            return self
        return replace(self, universal=replace(self.universal, loss="ce"))


@dataclass(frozen=True)
class _Fit:
    session: Session
    attack: UniversalAttack
    images: Tensor  # [N, *S] in [0, 1], on the CPU
    y: Tensor
    target: int
    at_once: int
    seed: int

    def gradient(self, state: UniversalState, chosen: Sequence[int]) -> tuple[Tensor, float]:
        """The float64 gradient of a mini-batch's objectives in the perturbation, and the share of its broken rows."""
        image = torch.tensor(list(chosen), device="cpu").repeat_interleave(self.attack.draws)
        draw = torch.arange(self.attack.draws, device="cpu").repeat(len(chosen))
        keys = noise.keys(self.seed, image, torch.full_like(image, state.steps), draw)
        total, broken = torch.zeros_like(state.perturbation, dtype=torch.float64), 0
        for rows in torch.split(torch.arange(len(image), device="cpu"), self.at_once):
            grads, labels = self._of_rows(state, image[rows], keys[rows])
            y = self.y[image[rows]]
            broken += int((labels == self.target if self.target >= 0 else labels != y).sum())
            for grad in grads:  # one after the other: a sum over a tensor would depend on how many rows it has
                total += grad
        return total, broken / len(image)

    def _of_rows(self, state: UniversalState, image: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """`[n, *P]` each row's gradient in a perturbation of its own, and the `[n]` classes."""
        x = self.images[image]
        with torch.enable_grad():
            own = state.perturbation.to(x).expand(len(x), *state.perturbation.shape).clone().requires_grad_()
            points = self.attack.apply(own, x, keys)
        seen = self._seen(points.detach(), image, keys, state.steps)
        check_finite(seen.grad, image.tolist(), "gradient")
        (grads,) = torch.autograd.grad(points, own, seen.grad.to(points))
        return grads.double(), seen.label.cpu()

    def _seen(self, points: Tensor, image: Tensor, keys: Tensor, steps: int) -> Seen:
        device = self.session.input.device
        y, count = self.y[image].to(device), torch.full_like(image, steps).to(device)
        aim = torch.full_like(y, self.target)
        points = points.to(device)
        trials = Trials(points, y, aim, aim, keys.to(device), torch.zeros_like(y))
        queried = State(trials, points, count, torch.zeros_like(y, dtype=torch.bool))
        ask: Callable[[Tensor], Seen] = lambda rows: self.session.query(self.objective, queried.take(rows))  # noqa: E731
        return in_parts(ask, torch.arange(len(image), device=device))

    @property
    def objective(self) -> _Objective:
        """What is maximised on one image."""
        return _Objective(0.0, universal=self.attack)
