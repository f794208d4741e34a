"""Attack tensors with one attack: the library's short way in."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from robustkit import limits
from robustkit.classifier.access import is_metered
from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.classifier.oracle import PointVerdicts
from robustkit.classifier.sanity_checks import changed_since_start, checked_images, checked_labels, checked_model
from robustkit.classifier.session import Session
from robustkit.classifier.surrogate_ensemble import surrogate_ensemble
from robustkit.data.masks import load_masks
from robustkit.data.tensors import Array, tensor_of
from robustkit.engine.jobs import Job, Outcome, likeliest, loss_targets_of
from robustkit.engine.originals import Original, judging, originals, same_bits
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments_but
from robustkit.host.notebook import Summarised, share
from robustkit.host.progress import shown_progress
from robustkit.host.warned import warn
from robustkit.primitives import ensembles, registry
from robustkit.primitives.given_examples import GivenExamples, JudgedExamples
from robustkit.primitives.image_masks import ImageMasks
from robustkit.primitives.levels import are_pictures
from robustkit.primitives.mask import Mask
from robustkit.primitives.protocol import Attack
from robustkit.statistics.single_draw import FreshDraws

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Attacked(Summarised):
    """The result for each image; all tensors on the CPU, in the order of `x`."""

    x_adv: Tensor  # [N, *S] in the caller's bounds: a witness where `success`, else the last point tried; the image
    # itself where it was not attacked
    success: Tensor  # [N] bool, classified correctly before and wrongly (or as the target) at `x_adv`
    clean_correct: Tensor  # [N] bool
    prediction: Tensor  # [N] int64 class at `x_adv`, -1 where a model abstains or rejects
    queries: Tensor  # [N] int64 queries of the deciding trial, 0 where clean wrong; of an ensemble 0 unless broken
    forwards: Tensor  # [N] int64 passes spent
    backwards: Tensor  # [N] int64
    right_draws: Tensor  # [N] float64 share of single answers at `x_adv` that are right; 0 or 1 unless randomized, NaN
    # of an ensemble on a randomized model
    parameters: Tensor  # [N, *P] that `x_adv` was rendered with, such as angles; `x_adv` itself in a norm
    zero_gradients: Tensor  # [N] bool, not broken, and at least half of the attack's gradients were exactly zero: the
    # attack says nothing about the image

    def summary(self) -> dict[str, str]:
        """Images and accuracies."""
        broken, right = int(self.success.sum()), int(self.clean_correct.sum())
        return {
            "images": str(len(self.success)), "clean accuracy": share(self.clean_accuracy),
            "robust accuracy": f"at most {share(self.robust_accuracy)}", "broken": f"{broken} of {right}",
            "passes": f"{int(self.forwards.sum())}+{int(self.backwards.sum())}",
        }  # fmt: skip

    def to_frame(self) -> "pd.DataFrame":
        """One row per image: verdict ("clean-wrong", "broken" or "robust"), prediction, queries and passes."""
        import pandas as pd

        verdict = ["broken" if hit else "robust" if right else "clean-wrong"
                   for hit, right in zip(self.success.tolist(), self.clean_correct.tolist(), strict=True)]  # fmt: skip
        names = ("clean_correct", "success", "prediction", "queries", "forwards", "backwards", "right_draws",
                 "zero_gradients")  # fmt: skip
        columns = {name: getattr(self, name).numpy() for name in names}
        return pd.DataFrame({"verdict": verdict, **columns}).rename_axis("image")

    @property
    def clean_accuracy(self) -> float:
        """Share of images classified correctly without any change."""
        return self.clean_correct.double().mean().item()

    @property
    def robust_accuracy(self) -> float:
        """Share classified correctly before and after: an upper bound on the true robust accuracy."""
        return (self.clean_correct & ~self.success).double().mean().item()

    @property
    def single_draw_accuracy(self) -> float:
        """The probability that one answer at `x_adv` is right, mean over images; of a randomized model's draws."""
        return self.right_draws.mean().item()

    @property
    def attack_success_rate(self) -> float:
        """Share of the correctly classified images that were broken; NaN when there were none."""
        return (self.success.sum() / self.clean_correct.sum()).item() if self.clean_correct.any() else float("nan")


@checked_arguments_but("model", "x", "y", "method", "target", "eps")
def attack(
    model: nn.Module | Classifier,
    x: Array,
    y: Array,
    method: Attack | GivenExamples | str,
    *,
    eps: float | str | None = None,
    norm: str = "Linf",
    mask: Mask | Array | str | Path | None = None,
    target: Array | None = None,
    surrogate: nn.Module | Classifier | Sequence[nn.Module | Classifier] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    batch_size: int = 64,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
    progress: bool | None = False,
) -> Attacked:
    """Attack every correctly classified image of `x`.

    What is promised holds for the tensor `x_adv` that is returned, in the units of `x` and in the wider of the types of
    `x` and of the model: in float64, its distance from `x` is at most `eps * (bounds[1] - bounds[0])` (in L0 at most
    `eps` values differ); each value lies in `bounds` or is that of `x`; and the model was asked about that very tensor.

    Args:
        model: takes images in `bounds`, returns logits. Its modes, buffers, `requires_grad` and `.grad` are restored,
            and so are the random states of torch, numpy and Python.
        x: `[N, *S]` float images.
        y: `[N]` true classes.
        method: such as `PGD(eps="8/255", steps=40)`, or the text "pgd:steps=40" with `eps` and `norm`; or adversarial
            examples that something else made (`load_examples`), likewise. `robustkit.attack` also takes an ensemble,
            "default" or "autoattack", for float32 images `[N, C, H, W]` in [0, 1]; an image that stands comes back as
            it is.
        eps: radius of a method without one, in units of pixels scaled to [0, 1], whatever `bounds` are.
        norm: of a method without one.
        mask: the pixels that may change, as in `load_mask`, or `[N, H, W]`: those of each image. None leaves it to
            the method.
        target: `[N]` classes that must be reached; None accepts any wrong class.
        surrogate: the model that the attack queries in place of `model`, which only judges each trial's last point:
            a transfer attack. Of several, the mean of the logits is queried.
        bounds: range of valid values; a `Classifier` has its own.
        batch_size: rows in flight. On a CPU it does not change a bit of the result.
        seed: of all noise.
        numbers: of the images, all different, by which each has its noise: in parts, a set of images is then attacked
            as in one call. By default 0 to N - 1.
        progress: show a bar on standard error; None shows it in a terminal only. Off by default, because `attack` is
            often called once for each batch.

    Raises:
        UserError: something about images, labels or model is wrong; the sentence names the fix.
    """
    seed = limits.whole_seed(seed)
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, not {batch_size}.")
    x, y = _tensor(x, "The images"), _tensor(y, "The labels")
    if y.dim() == 0 and x.dim() > 0:
        raise UserError("There is one label; attack takes a batch, so give x[None] and y[None] for one image.")
    masks = [] if mask is None else load_masks(mask, len(x))
    method = attack_of(method, norm, eps, masks[0] if masks else None)
    target = None if target is None else _tensor(target, "The targets")
    if x.dim() < 2:
        raise UserError(f"Images must be [N, *S], an axis for the images and others for values, not {list(x.shape)}.")
    classifier = as_classifier(model, bounds)
    images = classifier.place(checked_images(x.detach(), classifier.bounds))
    method = _for_images(method, images)
    own = originals(classifier, x)
    names = range(len(x)) if numbers is None else _checked_numbers(numbers, len(x))
    if is_metered(classifier.model):
        _require_pictures(classifier.name, images, own)
    with ExitStack() as stack:
        # Opened first, so that it is closed last.
        exact = None if same_bits(images, own) else stack.enter_context(judging(classifier).session(own, seed))
        session = stack.enter_context(classifier.session(images, seed))
        judge = exact or session
        _warn(classifier, session, images)
        other = None
        if surrogate is not None:
            queried = _queried(surrogate, bounds, classifier.device)
            other = stack.enter_context(queried.session(images, seed))
            _warn(queried, other, images)
        clean = judge.clean_verdicts(own, names)
        scores = clean.class_scores
        ranked = scores if other is None else other.judge(images)
        y = checked_labels(y.cpu(), len(x), min(scores.shape[1], ranked.shape[1]))
        targets = _checked_targets(target, y, ranked.shape[1])
        correct = clean.labels == y
        kept = [None if exact is None else Original(image, classifier.bounds) for image in own]
        rows = zip(names, images, y.tolist(), ranked, targets, kept, correct.tolist(), strict=True)
        jobs = [_job(method, *row) for *row, attacked in rows if attacked]
        watch = stack.enter_context(shown_progress(progress))
        watch.stage(f"{classifier.name} {type(method).__name__.lower()}", len(jobs), 0)
        outcomes, robust = [], len(jobs)
        if len(set(masks)) > 1:
            method = replace(
                method, mask=ImageMasks.of_numbers(dict(zip(names, masks, strict=True)), "given as an array")
            )
        for outcome in run(session, method, jobs, slots=batch_size, seed=seed, surrogate=other, judge=exact):
            outcomes.append(outcome)
            robust -= outcome.success
            watch.advance(1, robust / len(x))
        left = (~correct).nonzero().flatten().tolist()
        spared = judge.clean_draws(own[left], y[left].tolist(), [names[row] for row in left])
        for warning in [*changed_since_start(classifier, judge), *method.faults, *_blind(method, outcomes)]:
            warn(warning)
    row_of = {number: row for row, number in enumerate(names)}
    outcomes = [replace(outcome, sample=row_of[outcome.sample]) for outcome in outcomes]
    draws = dict(zip(left, spared or [], strict=False)) | {each.sample: each.draws for each in outcomes if each.draws}
    result = _gathered(own.cpu(), y, clean, outcomes)
    if method.ball.renders:
        result = replace(result, parameters=_parameters(method.ball.origin(images).cpu(), outcomes))
    return _with_draws(result, y, draws)


def attack_of(method: object, norm: str, eps: float | str | None, mask: Mask | None = None) -> Attack:
    """The attack that a caller gives as an object or as a text.

    Raises:
        UserError: there is no such attack, or not with this radius.
    """
    if isinstance(method, Attack):
        if eps is not None:
            raise UserError(f"{type(method).__name__} has a radius of its own, {method.eps}; leave out eps=.")
        if mask is not None and method.mask is not None:
            raise UserError(f"{type(method).__name__} has a mask of its own; leave out mask=.")
        return method if mask is None else replace(method, mask=mask)
    if isinstance(method, GivenExamples):
        if eps is None:
            raise UserError(f"The examples {method.name} have no radius; add eps=, for example eps='8/255'.")
        return replace(method.within(eps, norm), mask=mask)
    if isinstance(method, type):
        raise UserError(f"{method.__name__} is a class; build the attack first: {method.__name__}(eps='8/255').")
    if not isinstance(method, str):
        raise UserError(f"An attack is a string such as 'pgd:steps=40' or an object, not {type(method).__name__}.")
    if ensembles.is_ensemble(method):
        raise UserError(
            f"{method} is an ensemble of attacks, which robustkit.evaluate runs (out=FOLDER, "
            "keep_adversarial=True stores its examples); give one attack here."
        )
    return replace(registry.build(method, norm, required_radius(method, eps)), mask=mask)


def required_radius(method: str, eps: float | str | None) -> float | str:
    """The radius of a method that is given as a text.

    Raises:
        UserError: there is none.
    """
    if eps is None:
        raise UserError(f"The attack {method!r} needs a radius; add eps=, for example eps='8/255'.")
    return eps


def _for_images(method: Attack, images: Tensor) -> Attack:
    """The method for these images, of which given examples may know some only."""
    if not isinstance(method, JudgedExamples):
        return method
    counts, name = method.given.counts(images), method.given.name
    note = f"{counts.count(0)} of the {len(images)} images have no example in {name}, and count as not broken by it."
    return replace(method, given=method.given.among(counts, note))


def _tensor(values: object, what: str) -> Tensor:
    if isinstance(values, (TorchDataset, DataLoader)):
        raise UserError(
            f"{what} must be a tensor or an array, not a {type(values).__name__}; robustkit.evaluate(dataset=...) "
            "takes data sets and loaders."
        )
    return tensor_of(values, what)


def _checked_numbers(numbers: Sequence[int], count: int) -> list[int]:
    names = [int(number) for number in numbers]
    if len(names) != count or len(set(names)) != count:
        raise UserError(
            f"{count} images need {count} different numbers, not {len(names)} ({len(set(names))} different)."
        )
    if not all(0 <= number < 2**63 for number in names):
        raise UserError("The numbers of images must lie between 0 and 2**63 - 1.")
    return names


def _queried(
    surrogate: nn.Module | Classifier | Sequence[nn.Module | Classifier], bounds: tuple[float, float],
    device: torch.device,
) -> Classifier:  # fmt: skip
    models = surrogate if isinstance(surrogate, Sequence) else [surrogate]
    if not models:
        raise UserError("surrogate names no model; give one or several, or None to query the model itself.")
    return surrogate_ensemble([as_classifier(each, bounds).on(device) for each in models])


def _require_pictures(name: str, images: Tensor, own: Tensor) -> None:
    """Refuse images that no server can be sent: its verdicts would be about others."""
    if not same_bits(images, own) or not bool(are_pictures(images).all()):
        raise UserError(f"{name} gets 8-bit images, and these have more levels; give float32 (x * 255).round() / 255.")


def _warn(classifier: Classifier, session: Session, images: Tensor) -> None:
    for warning in checked_model(classifier, session, images):
        warn(warning)


def _blind(method: Attack, outcomes: Sequence[Outcome]) -> list[str]:
    """A warning if gradients were zero on images that were not broken."""
    left, blind = sum(not each.success for each in outcomes), sum(each.blind for each in outcomes)
    if not blind or method.ball.eps == 0:
        return []
    return [
        f"The attack did not break {left} images, and on {blind} of them at least half of its gradients were exactly "
        "zero, so it says nothing about them. robustkit diagnose finds the layer, or the loss that saturates."
    ]


def _checked_targets(target: Tensor | None, y: Tensor, classes: int) -> list[int] | list[None]:
    if target is None:
        return [None] * len(y)
    targets = checked_labels(target.cpu(), len(y), classes, what="target")
    if bool((targets == y).any()):
        raise UserError("A target equals the true class; name another class for every image.")
    return targets.tolist()


def _job(
    method: Attack, number: int, x: Tensor, y: int, logits: Tensor, target: int | None, original: Original | None
) -> Job:
    """The job for one image: the loss aims at its target, or at its likeliest wrong classes, or at none."""
    if target is not None:
        return Job(number, x, y, (target,), target, original)
    loss_targets = loss_targets_of(method, likeliest(logits, y)) if method.targets else (-1,)
    return Job(number, x, y, loss_targets, original=original)


def _gathered(images: Tensor, y: Tensor, clean: PointVerdicts, outcomes: list[Outcome]) -> Attacked:
    points = images.clone()
    zeros = torch.zeros(len(points), dtype=torch.int64, device="cpu")
    correct, forwards = clean.labels == y, zeros + torch.tensor(clean.forwards, device="cpu")
    result = Attacked(
        points, torch.zeros_like(correct), correct, clean.labels.clone(), zeros, forwards, zeros.clone(),
        zeros.double(), points, torch.zeros_like(correct),
    )  # fmt: skip

    def column(name: str) -> Tensor:
        return torch.tensor([getattr(outcome, name) for outcome in outcomes], dtype=torch.int64, device="cpu")

    at = column("sample")
    for outcome in outcomes:
        points[outcome.sample] = outcome.x_adv
    result.success[at] = column("success").bool()
    result.zero_gradients[at] = column("blind").bool()
    result.prediction[at] = column("label")
    result.queries[at] = column("queries")
    result.forwards[at] += column("forwards")
    result.backwards[at] = column("backwards")
    # Equal values have the caller's bits, the sign of a zero included.
    x_adv = torch.where(points == images, images, points)
    return replace(result, x_adv=x_adv, parameters=x_adv)


def _parameters(still: Tensor, outcomes: list[Outcome]) -> Tensor:
    """`[N, *P]` of all images; those that were not attacked have `still`."""
    parameters = still.clone()
    for outcome in outcomes:
        assert outcome.parameters is not None, "a rendered point without its parameters"
        parameters[outcome.sample] = outcome.parameters
    return parameters


def _with_draws(result: Attacked, y: Tensor, draws: Mapping[int, FreshDraws]) -> Attacked:
    """The result with the shares of single answers that are right; without draws all answers are the prediction."""
    right = (result.prediction == y).double()
    for row, each in draws.items():
        right[row] = each.estimation / each.draws
    spared = torch.tensor([row for row in draws if not result.clean_correct[row]], dtype=torch.int64, device="cpu")
    passes = [2 * draws[row].draws for row in spared.tolist()]
    result.forwards[spared] += torch.tensor(passes, dtype=torch.int64, device="cpu")
    return replace(result, right_draws=right)
