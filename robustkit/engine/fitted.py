"""A perturbation that was fitted to many images, and what a model says about other images with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.classifier.sanity_checks import checked_images, checked_labels
from robustkit.classifier.session import Session
from robustkit.data.tensors import Array, tensor_of
from robustkit.engine.jobs import reached
from robustkit.engine.originals import judging, originals, same_bits
from robustkit.errors import UserError
from robustkit.host.notebook import Summarised, share
from robustkit.primitives import noise
from robustkit.primitives.rounding import Bounds
from robustkit.primitives.universal import UniversalAttack
from robustkit.statistics.intervals import Proportion, mean_of_shares, proportion

PLACES = 16  # of a patch on each image, when it is judged
_JUDGED = 1 << 41  # apart from the seeds of the fit's noise and of clean images
_AT_ONCE = 64


class JudgedIntervals(NamedTuple):
    """The numbers of a judgement with their 95 % intervals."""

    clean_accuracy: Proportion
    robust_accuracy: Proportion
    attack_success_rate: Proportion
    placed_success_rate: Proportion


@dataclass(frozen=True, repr=False)
class JudgedPerturbation(Summarised):
    """What the unmodified model says about images with the perturbation; all tensors on the CPU, in the order given.

    An image of the target class is not attacked: it counts neither as broken nor in the success rates.
    """

    clean_correct: Tensor  # [N] bool
    attacked: Tensor  # [N] bool, classified correctly, and not of the target class
    success: Tensor  # [N] bool, attacked, and then classified wrongly (or as the target) at the first place
    prediction: Tensor  # [N] int64 there, -1 where a model abstains or rejects
    placed_success: Tensor  # [N] float64 share of all places where that happens; 0 where not attacked
    places: int  # per image; 1 for a perturbation that has no place

    def summary(self) -> dict[str, str]:
        """Images and accuracies."""
        return {
            "images": str(len(self.success)), "clean accuracy": share(self.clean_accuracy),
            "robust accuracy": f"at most {share(self.robust_accuracy)}",
            "broken": f"{int(self.success.sum())} of {int(self.attacked.sum())}",
        }  # fmt: skip

    @property
    def clean_accuracy(self) -> float:
        """Share of images classified correctly without any change."""
        return self.intervals.clean_accuracy.value

    @property
    def robust_accuracy(self) -> float:
        """Share classified correctly and not broken: an upper bound on the true robust accuracy."""
        return self.intervals.robust_accuracy.value

    @property
    def attack_success_rate(self) -> float:
        """Share of the attacked images that were broken; NaN when there were none."""
        return self.intervals.attack_success_rate.value

    @property
    def placed_success_rate(self) -> float:
        """The probability that an attacked image is broken at a random place."""
        return self.intervals.placed_success_rate.value

    @property
    def intervals(self) -> JudgedIntervals:
        """All numbers with their intervals."""
        n, attacked = len(self.success), int(self.attacked.sum())
        correct, broken = int(self.clean_correct.sum()), int(self.success.sum())
        return JudgedIntervals(
            proportion(correct, n),
            proportion(correct - broken, n),
            proportion(broken, attacked),
            mean_of_shares(min(float(self.placed_success.sum()), attacked), attacked),
        )


@dataclass(frozen=True, repr=False)
class FittedPerturbation(Summarised):
    """One perturbation for all images."""

    attack: UniversalAttack
    perturbation: Tensor  # [*P] on the CPU, in units of pixels that lie in [0, 1]
    target: int | None  # class that must be reached; None: any wrong class
    bounds: Bounds  # of the images that `apply` takes
    seed: int
    fitted: Tensor  # [n] int64 numbers of the images that it was fitted to
    forwards: int  # passes that the fit took
    backwards: int

    def summary(self) -> dict[str, str]:
        """What it is, and what it was fitted to."""
        shape = " x ".join(map(str, self.perturbation.shape))
        return {
            "attack": type(self.attack).__name__, "shape": shape,
            "fitted to": f"{len(self.fitted)} images", "passes": f"{self.forwards}+{self.backwards}",
        }  # fmt: skip

    def apply(self, x: Array, *, place: int = 0, numbers: Sequence[int] | None = None) -> Tensor:
        """`[N, *S]` images in the caller's units with the perturbation: the tensor that is judged.

        Args:
            x: images in `bounds`.
            place: which of an image's random places is taken; 0 is the one of the verdict.
            numbers: of the images, by which each has its places. By default 0 to N - 1.

        Raises:
            UserError: the images do not lie in `bounds`, or have another shape than those of the fit.
        """
        own = tensor_of(x, "The images").detach().cpu()
        own = own if own.dtype in (torch.float32, torch.float64) else own.float()
        low, high = self.bounds
        images = checked_images(own, self.bounds)
        images = images if (low, high) == (0, 1) else ((images - low) / (high - low)).clamp(0, 1)
        self._check_shape(images)
        keys = _keys(self.seed + _JUDGED, range(len(own)) if numbers is None else numbers, place)
        perturbation = self.perturbation.to(images)
        parts = torch.split(torch.arange(len(own), device="cpu"), _AT_ONCE)
        return torch.cat([self.attack.judged(perturbation, images[n], keys[n], own[n], self.bounds) for n in parts])

    def judge(
        self,
        model: nn.Module | Classifier,
        x: Array,
        y: Array,
        *,
        places: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> JudgedPerturbation:
        """What an unmodified model says about images with the perturbation, also another model than that of the fit.

        Args:
            model: takes images in `bounds`. Its modes, buffers, `requires_grad` and `.grad` are restored, and so
                are the random states of torch, numpy and Python.
            x: `[N, *S]` images, as a rule others than those of the fit.
            y: `[N]` true classes.
            places: how many random places are tried on each image, if the perturbation has a place. None takes 16.
            numbers: of the images, by which each has its places. By default 0 to N - 1.

        Raises:
            UserError: something about images, labels or model is wrong; the sentence names the fix.
        """
        places = self._places(places)
        x, y = tensor_of(x, "The images"), tensor_of(y, "The labels").cpu()
        classifier = as_classifier(model, self.bounds)
        if tuple(classifier.bounds) != tuple(self.bounds):
            raise UserError(
                f"The perturbation is for pixels in {self.bounds}, and the model takes {classifier.bounds}."
            )
        images, own = classifier.place(checked_images(x.detach(), classifier.bounds)), originals(classifier, x)
        self._check_shape(images)
        judge = classifier if same_bits(images, own) else judging(classifier)
        names = range(len(x)) if numbers is None else numbers
        with judge.session(own, self.seed) as session:
            clean = session.clean_verdicts(own, range(len(own)))
            y = checked_labels(y, len(x), clean.class_scores.shape[1])
            correct = clean.labels == y
            target = -1 if self.target is None else self.target
            if target >= clean.class_scores.shape[1]:
                raise UserError(f"The target class {target} is not a class of the model, which has 0 to "
                                f"{clean.class_scores.shape[1] - 1}.")  # fmt: skip
            attacked = correct & (y != target)
            labels = [self._labels(session, own, names, place) for place in range(places)]
        wins = torch.stack([self._broken(each, y) & attacked for each in labels])
        return JudgedPerturbation(correct, attacked, wins[0], labels[0], wins.double().mean(0), places)

    def _labels(self, session: Session, own: Tensor, names: Sequence[int], place: int) -> Tensor:
        points = self.apply(own, place=place, numbers=names).to(own)
        first = (1 + place) * len(own)  # a randomized model gets other noise for each place
        return session.clean_verdicts(points, range(first, first + len(own))).labels

    def _broken(self, labels: Tensor, y: Tensor) -> Tensor:
        return torch.tensor(
            [reached(*pair, self.target) for pair in zip(labels.tolist(), y.tolist(), strict=True)], device="cpu"
        )

    def _places(self, places: int | None) -> int:
        if not self.attack.placed:
            return 1
        if places is not None and places < 1:
            raise UserError(f"places counts the places of the patch on each image, so at least 1, not {places}.")
        return PLACES if places is None else places

    def _check_shape(self, images: Tensor) -> None:
        need = tuple(self.attack.init(tuple(images.shape[1:])).perturbation.shape)
        if need != tuple(self.perturbation.shape):
            raise UserError(
                f"The perturbation {list(self.perturbation.shape)} does not fit images {list(images.shape[1:])}; "
                "resize them to the size of the images that it was fitted on."
            )


def _keys(seed: int, numbers: Sequence[int], place: int) -> Tensor:
    names = torch.tensor(list(numbers), dtype=torch.int64, device="cpu")
    return noise.keys(seed, names, torch.full_like(names, place))
