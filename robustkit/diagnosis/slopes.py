"""The loss's gradient at each call, and how the network as a whole keeps what its gradient promises."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.nethook import StaleActivationError, Trace
from robustkit.primitives import losses

from .calls import Site, floats
from .fidelity import SMALL, agreement, per_image
from .question import Question, kept

_ROUNDING = 64.0  # in units of the type's precision, relative to the largest logit
_LOST = 0.05  # share of the size of a gradient in the logits that may be left over from a sum of zero


class Gradient(NamedTuple):
    """The gradient of the loss at one place, for each of `n` images."""

    norm: Tensor  # [n]
    zero: Tensor  # [n] 1 where every value is exactly zero, or none comes
    nonfinite: Tensor  # [n] 1 where a value is NaN or infinite


class Whole(NamedTuple):
    """The network from end to end, for each of `n` images."""

    fidelity: Tensor  # [n] of the margin at the full move
    fidelity_small: Tensor  # [n] at a hundredth of it
    zero: Tensor  # [n] 1 where the loss's gradient in the image is exactly zero
    lost: Tensor  # [n] 1 where rounding took the loss's gradient in the logits
    lost_ce: Tensor  # [n] the same for cross-entropy, whatever the loss
    probabilities: Tensor  # [n] 1 where the outputs are at least zero and sum to one
    largest: Tensor  # [n] the largest logit by magnitude
    rivals: Tensor  # [n] how many wrong classes share the loss's pull, as a share of all of them
    spread: Tensor  # [n] standard deviation of the wrong logits over the distance of their mean to the right one
    correct: Tensor  # [n] 1 where the prediction is the label


class Slopes(NamedTuple):
    """The gradient at each call, and the whole."""

    at: dict[Site, Gradient]
    whole: Whole


def slopes(question: Question, sites: Iterable[Site]) -> Slopes:
    """The gradient of the loss at the output of each call, and what goes for the whole network."""
    wanted = list(sites)
    found = [_slopes(part, wanted) for part in question.parts()]
    known = [site for site in wanted if all(site in part.at for part in found)]
    at = {site: Gradient(*_stacked([part.at[site] for part in found])) for site in known}
    return Slopes(at, Whole(*_stacked([part.whole for part in found])))


def _slopes(part: Question, sites: Sequence[Site]) -> Slopes:
    count, query = len(part.x), part.x.clone().requires_grad_()
    layers = list(dict.fromkeys(site.layer for site in sites))
    none = torch.full_like(part.y, -1)
    with torch.enable_grad(), Trace(part.classifier.network, layers, output=False, grad=True, strict=False) as trace:
        logits = part.ask(query)
        margin = losses.margin(logits, part.y)
        loss = losses.loss(part.loss)(logits, part.y, none)
        uphill = _slope(margin, query)
        at_image, at_logits = _slope(loss, query), _slope(loss, logits)
        by_ce = _slope(losses.loss("ce")(logits, part.y, none), logits)
        if loss.requires_grad:
            # An output that is a view and written into later has no gradient to be read; its row says so by a dash.
            with contextlib.suppress(StaleActivationError):
                trace.grad(loss.sum())
    found = {
        Site(call.name, call.index): _gradient(call.grad, count)
        for call in trace.calls
        if call.grads or not loss.requires_grad
    }
    found = {site: found[site] for site in sites if site in found}
    logits = logits.detach()
    rivals, spread = _ties(logits.double(), part.y)
    whole = Whole(
        *_kept_promise(part, uphill, logits, margin.detach()), zero=_gradient([at_image], count).zero,
        lost=kept(_lost(at_logits)), lost_ce=kept(_lost(by_ce)), probabilities=kept(_probabilities(logits)),
        largest=kept(logits.abs().amax(1)), rivals=kept(rivals), spread=kept(spread),
        correct=kept(logits.argmax(1) == part.y),
    )  # fmt: skip
    return Slopes(found, whole)


def _kept_promise(part: Question, slope: Tensor, logits: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Fidelity of the margin at the full move and at a hundredth of it."""
    move = part.moved - part.x
    along = (per_image(slope, len(part.x)) * per_image(move, len(part.x))).sum(1)
    floor = _ROUNDING * torch.finfo(logits.dtype).eps * logits.abs().amax(1)
    found = []
    for share in (1.0, SMALL):
        with torch.no_grad():
            change = losses.margin(part.ask(part.x + share * move), part.y) - margin
        found.append(kept(torch.where(change.abs() > floor, agreement(share * along, change), torch.nan)))
    return found[0], found[1]


def _slope(value: Tensor, point: Tensor) -> Tensor:
    """The gradient of a sum, zeros where there is none."""
    if not value.requires_grad or not point.requires_grad:
        return torch.zeros_like(point)
    grad = torch.autograd.grad(value.sum(), point, retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(point) if grad is None else grad


def _gradient(grad: Any, count: int) -> Gradient:
    parts = [per_image(part, count) for part in floats(grad)]
    rows = torch.cat(parts, 1) if parts else torch.zeros(count, 1)
    # In double precision: a gradient of 1e-30 is no zero, and its square would be one.
    return Gradient(kept(rows.double().norm(dim=1)), kept((rows == 0).all(1)), kept((~rows.isfinite()).any(1)))


def _lost(grad: Tensor) -> Tensor:
    # Each of our losses ignores a shift of all logits, so its gradient there sums to zero: else rounding took a part.
    size = grad.double().abs().sum(1)
    return (size == 0) | (grad.double().sum(1).abs() > _LOST * size) | ~size.isfinite()


def _probabilities(logits: Tensor) -> Tensor:
    return (logits >= 0).all(1) & ((logits.sum(1) - 1).abs() < 5e-3)


def _ties(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    own = F.one_hot(y, logits.shape[1]).bool()
    right, wrong = logits[own], logits[~own].reshape(len(y), -1)
    if wrong.shape[1] < 3:
        return torch.full_like(right, torch.nan), torch.full_like(right, torch.nan)
    chance = wrong.softmax(1)
    rivals = (-(chance * chance.clamp(min=1e-300).log()).sum(1)).exp() / wrong.shape[1]
    return rivals, wrong.std(1) / (right - wrong.mean(1)).abs().clamp(min=1e-300)


def _stacked(parts: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    return [torch.cat(column) for column in zip(*parts, strict=True)]
