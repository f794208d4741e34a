"""What must hold before any attack: valid images and labels, and a model that answers each row on its own."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from robustkit.black_box.http_model import HttpModel
from robustkit.classifier import rejection
from robustkit.classifier.access import black_box_in
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.earlier_queries import check_earlier_queries, kept_state
from robustkit.classifier.logit_sizes import sizes
from robustkit.classifier.logits import logits_of, require_finite
from robustkit.classifier.randomized import Randomized
from robustkit.classifier.rows_apart import check_rows_apart
from robustkit.classifier.session import Session
from robustkit.data import Dataset
from robustkit.data.checks import require_channels_first
from robustkit.errors import UserError
from robustkit.primitives.rows import rows_not_finite

_ROUNDING = 1e-3  # of probabilities that were computed in 16 bits


def checked_images(x: Tensor, bounds: tuple[float, float], numbers: Sequence[int] | None = None) -> Tensor:
    """The images inside their bounds: an overshoot of 1e-6 of the range is clamped; `numbers` name them in errors.

    Raises:
        UserError: values are not finite or lie outside the bounds, or the channels come last.
    """
    require_channels_first(x.shape, "The images")
    low, high = bounds
    slack = 1e-6 * (high - low)
    if not len(x):
        raise UserError("There are no images to attack; the data set is empty.")
    if not x.is_floating_point():
        raise UserError(f"Images must be floating point numbers in [{low:g}, {high:g}], not {x.dtype}; divide by 255.")
    least, most = (value.item() for value in x.aminmax())
    if not math.isfinite(least + most):
        bad = rows_not_finite(x)[0]
        number = bad if numbers is None else numbers[bad]
        raise UserError(f"Image {number} holds NaN or infinite values; remove or correct it.")
    if least < low - slack or most > high + slack:
        raise UserError(
            f"Images must lie in [{low:g}, {high:g}], but these lie in [{least:g}, {most:g}]: give pixels as they are, "
            "with the normalisation inside the model (mean=, std=), or declare their bounds."
        )
    return x.clamp(low, high)


def checked_batch(data: Dataset, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """`Dataset.batch`, with images in [0, 1] that `checked_images` has looked at."""
    x, y = data.batch(numbers)
    return checked_images(x, (0, 1), numbers), y


def checked_labels(y: Tensor, count: int, classes: int | None = None, what: str = "label") -> Tensor:
    """Labels, or what else `what` names, as `[N]` int64, one per image and each a class of the model.

    Args:
        y: the labels.
        count: N.
        classes: of the model; None, if they are not known yet, allows any number from 0.
        what: they are called in errors.

    Raises:
        UserError: their number, type or range is wrong; the sentence names the first that is.
    """
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool or y.shape != (count,):
        raise UserError(
            f"{what.title()}s must be {count} whole numbers, one per image, not {list(y.shape)} of {y.dtype}."
        )
    bad = ((y < 0) if classes is None else (y < 0) | (y >= classes)).nonzero().flatten().tolist()
    if bad:
        known = "whose classes count from 0" if classes is None else f"which has 0 to {classes - 1}"
        raise UserError(f"{what.title()} {int(y[bad[0]])} of image {bad[0]} is not a class of the model, {known}.")
    return y.long()


def checked_scores(scores: Tensor, y: Tensor, model: str, numbers: Sequence[int]) -> Tensor:
    """Scores `[n, K]` of clean images, finite, and with a class for each label.

    Args:
        scores: logits or votes.
        y: `[n]` labels.
        model: its name, for errors.
        numbers: of the images, for errors.

    Raises:
        UserError: a score is NaN or infinite, or a label is no class of the model.
    """
    bad = rows_not_finite(scores)
    if bad:
        raise UserError(f"The model {model} returns NaN or infinite logits for image {numbers[bad[0]]}.")
    high = (y >= scores.shape[1]).nonzero().flatten().tolist()
    if high:
        raise UserError(
            f"Image {numbers[high[0]]} has label {int(y[high[0]])}, but the model {model} has classes 0 to "
            f"{scores.shape[1] - 1}; use a model for this data set, or --num-classes."
        )
    return scores


def checked_model(classifier: Classifier, session: Session, images: Tensor) -> list[str]:
    """Warnings about a model, queried at a few images `[n, *S]` in [0, 1].

    Args:
        classifier: the model.
        session: of it.
        images: clean ones.

    Raises:
        UserError: the model fails on them, returns NaN, or an image's answer depends on the rest of its batch or on
            earlier queries.
    """
    box = black_box_in(classifier.model)
    if isinstance(box, HttpModel):
        return _about_server(classifier, box, session, images)
    tile = images[torch.arange(16, device=images.device) % len(images)]
    if isinstance(session.oracle, Randomized):
        check_rows_apart(session, tile)
        return [_about_draws(classifier, session.oracle)]
    reversed_tile = torch.flip(tile, [0]).clone()
    reversed_tile[0] = 1 - reversed_tile[0]  # one image is replaced, too
    # Both in one batch each: a session queries some networks one image at a time, which would hide what is looked for.
    forward = session.reference.forward
    before = kept_state(session.reference.model)
    logits, other = forward(tile), forward(reversed_tile).flip(0)
    require_finite(logits)
    if classifier.rejects and logits.shape[1] < 3:
        raise UserError(
            f"{classifier.name} returns {logits.shape[1]} logits, and one that rejects has two classes and the "
            "rejection, three at least; leave out rejects (--rejects)."
        )
    if bool(((logits - other).abs() > 1e-3 * sizes(logits))[:-1].any()):
        raise UserError(
            "The model's answer for an image depends on the other images of its batch, so its verdict would too; "
            "put BatchNorm and the like in eval mode (before an export), or feed one image at a time inside the model."
        )
    if kept_state(session.reference.model) != before:
        check_earlier_queries(session, tile)
    if classifier.eot is not None and classifier.eot > 1 and classifier.smoothing is None:
        return ["The model repeats its answer to the same query, so there is nothing to average: eot is not used."]
    if classifier.rejects and not looks_like_probabilities(logits):
        logits = rejection.of_classes(logits)  # the score of a detector beside probabilities has any range
    return _about_probabilities(classifier, logits, session, tile)


def _about_server(classifier: Classifier, server: HttpModel, session: Session, images: Tensor) -> list[str]:
    """Its pictures are sent one by one, so that none depends on others; their answers are checked as they come."""
    warnings = _about_probabilities(classifier, session.reference.forward(images[:4]), session, images[:4])
    if server.repeats_labels(images):
        return warnings
    return [
        *warnings,
        f"{classifier.name} answers the same image with another class when it is sent again; the first answer to an "
        "image counts here, so results are about one draw of a randomized server.",
    ]


def changed_since_start(classifier: Classifier, session: Session) -> list[str]:
    """A warning if the model answers otherwise at the end of a session than at its start."""
    if session.repeatability.lasts():
        return []
    return [
        f"{classifier.name} gives other answers to the same images now than at the start (it counts its calls, or "
        "keeps a state between them), so trust none of its verdicts; make its forward depend on its input alone."
    ]


def _about_draws(classifier: Classifier, oracle: Randomized) -> str:
    shared = " All rows of a batch get the same random numbers, so each draw is sent alone."
    return (
        f"{classifier.name} is randomized: an attack sees the mean of {oracle.eot} draws per query, and a point counts "
        f"as broken only if a class other than the label is significantly the most frequent one in up to "
        f"{oracle.draws:,} fresh draws.{shared if oracle.together == 1 else ''}"
    )


def looks_like_probabilities(scores: Tensor) -> bool:
    """Whether each row of `[n, K]` has numbers from 0 to 1 that add up to 1."""
    return in_unit_range(scores) and bool(((scores.sum(1) - 1).abs() < 5e-3).all())


def in_unit_range(scores: Tensor) -> bool:
    """Whether all numbers lie in [0, 1]."""
    return bool(((scores >= 0) & (scores <= 1)).all())


def _about_probabilities(classifier: Classifier, logits: Tensor, session: Session, images: Tensor) -> list[str]:
    if classifier.probabilities:
        if not bool(((logits > -_ROUNDING) & (logits < 1 + _ROUNDING)).all()):
            raise UserError(
                f"{classifier.name} returns numbers outside of [0, 1], which are not probabilities; leave out "
                "--probabilities."
            )
        if _is_one_share(logits):
            raise _one_probability(classifier)
        return []
    # The one logit of a network that is not trained lies in (0, 1) by chance; at other points it does not.
    if _is_one_share(logits) and (black_box_in(classifier.model) is not None or _stays_a_share(session, images)):
        raise _one_probability(classifier)
    if looks_like_probabilities(logits):
        return [
            "The model seems to return probabilities, not logits: gradients through a softmax vanish and attacks look "
            "weaker than they are; return what goes into the softmax, or say probabilities (--probabilities)."
        ]
    return []


def _is_one_share(logits: Tensor) -> bool:
    """Whether a model seems to return one number from 0 to 1, of which `logits_of` makes the logits (0, z)."""
    share = logits[:, -1]
    inside = ((share >= 0) & (share <= 1)).all() & ((share > 0) & (share < 1)).any()  # a sigmoid rounds to 0 and 1
    return logits.shape[1] == 2 and bool((logits[:, 0] == 0).all() & inside)


def _one_probability(classifier: Classifier) -> UserError:
    # Read as a logit it is always class 1.
    return UserError(
        f"{classifier.name} returns one probability for each image; let it return the logit before its sigmoid, or the "
        "probabilities of both classes, torch.cat([1 - p, p], 1), and say so (--probabilities)."
    )


@torch.enable_grad()
def _stays_a_share(session: Session, images: Tensor) -> bool:
    """Whether a model's one logit is in [0, 1] also at the corners of [0, 1] to which its gradient points."""
    points = images.detach().clone().requires_grad_()
    # A copy, because a model may write into its input.
    logit = logits_of(session.reference.model(session.input.fed(points.clone())), points)[:, 1]
    session.passes.forwards += len(points)
    if not logit.requires_grad:
        return True
    grad: Tensor | None = torch.autograd.grad(logit.sum(), points, allow_unused=True)[0]
    if grad is None:
        return True
    session.passes.backwards += len(points)
    corners = [torch.where(grad == 0, points, (sign * grad > 0).to(points)) for sign in (1, -1)]
    logits = torch.cat([session.reference.forward(corner.detach())[:, 1] for corner in corners])
    return bool(((logits >= 0) & (logits <= 1)).all())  # a sigmoid rounds to 0 and 1
