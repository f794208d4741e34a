"""The loss gradient at each layer call, and how well the gradient of the whole network predicts its margin."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.nethook import StaleActivationError, Trace
from robustkit.nethook.gradients import gradients_or_zeros
from robustkit.primitives import losses

from .calls import Site, floats
from .fidelity import SMALL, agreement
from .layer_function import per_image
from .subject import Subject, as_float64

_ROUNDING = 64.0  # in units of the type's precision, relative to the largest logit
_NEAR = 1e-3  # of the range of an image's logits
_LOST = 0.05  # largest sum of a gradient with respect to the logits, which should be zero, as a share of its size


class CallGradient(NamedTuple):
    """The gradient of the loss with respect to one call's output, for each of `n` images."""

    norm: Tensor  # [n]
    zero: Tensor  # [n] 1 where every value is exactly zero, or there is no gradient
    nonfinite: Tensor  # [n] 1 where a value is NaN or infinite


class EndToEndNumbers(NamedTuple):
    """The network from image to logits, for each of `n` images."""

    fidelity: Tensor  # [n] of the margin at the full perturbation
    fidelity_small: Tensor  # [n] at a hundredth of it
    zero: Tensor  # [n] 1 where the loss gradient with respect to the image is exactly zero
    lost: Tensor  # [n] 1 where rounding destroyed the loss gradient with respect to the logits
    lost_ce: Tensor  # [n] the same for cross-entropy, whatever the loss
    probabilities: Tensor  # [n] 1 where the outputs are at least zero and sum to one
    largest: Tensor  # [n] the largest logit by magnitude
    rivals: Tensor  # [n] effective number of wrong classes that an untargeted loss follows, as a share of all of them
    spread: Tensor  # [n] standard deviation of the wrong logits over the distance of their mean to the true one
    crowded: Tensor  # [n] share of the other logits that equal the largest or the smallest, to 0.001 of their range
    correct: Tensor  # [n] 1 where the prediction is the label
    still: Tensor  # [n] 1 where the full perturbation changes no logit
    unseen: Tensor  # [n] how far the logits move if only values without a gradient do, as a share of the full move
    randomized: Tensor  # [n] 1 where the same image gives other logits after another seed


class LossGradients(NamedTuple):
    """The gradient at each call, and the numbers of the whole network."""

    at: dict[Site, CallGradient]
    whole: EndToEndNumbers


def loss_gradients(subject: Subject, sites: Iterable[Site]) -> LossGradients:
    """The loss gradient with respect to the output of each call, and the numbers of the whole network."""
    wanted = list(sites)
    parts = [_of_batch(batch, wanted) for batch in subject.batches()]
    complete = [site for site in wanted if all(site in part.at for part in parts)]
    at = {site: CallGradient(*_concatenated([part.at[site] for part in parts])) for site in complete}
    return LossGradients(at, EndToEndNumbers(*_concatenated([part.whole for part in parts])))


def _of_batch(batch: Subject, sites: Sequence[Site]) -> LossGradients:
    count, query = len(batch.x), batch.x.clone().requires_grad_()
    layers = list(dict.fromkeys(site.layer for site in sites))
    untargeted = torch.full_like(batch.y, -1)
    with torch.enable_grad(), Trace(batch.classifier.network, layers, output=False, grad=True, strict=False) as trace:
        logits = batch.logits(query)
        margin = losses.margin(logits, batch.y)
        loss = losses.loss(batch.loss)(logits, batch.y, untargeted)
        margin_grad = _grad_or_zeros(margin, query)
        image_grad = _grad_or_zeros(loss, query)
        # Of all logits together, so that it is zero only where none of them has a gradient.
        seen = _grad_or_zeros(logits @ torch.linspace(1, 2, logits.shape[1], device="cpu").to(logits), query) != 0
        # Of a copy: logits that are cut off from the graph say nothing about the loss.
        scores = logits.detach().clone().requires_grad_()
        logits_grad, ce_grad = (
            _grad_or_zeros(losses.loss(name)(scores, batch.y, untargeted), scores) for name in (batch.loss, "ce")
        )
        if loss.requires_grad:
            # The gradient of a view that is overwritten in place cannot be read; its row then has a dash.
            with contextlib.suppress(StaleActivationError):
                trace.grad(loss.sum())
    by_call = {
        Site(call.name, call.index): _summarized(call.grad if call.grads else None, count)
        for call in trace.calls
        if call.grads or not loss.requires_grad
    }
    logits = logits.detach()
    rivals, spread = _ties(logits.double(), batch.y)
    whole = EndToEndNumbers(
        **_moved(batch, margin_grad, seen, logits, margin.detach()), zero=_summarized([image_grad], count).zero,
        lost=as_float64(_lost(logits_grad)), lost_ce=as_float64(_lost(ce_grad)),
        probabilities=as_float64(_probabilities(logits)), largest=as_float64(logits.abs().amax(1)),
        rivals=as_float64(rivals), spread=as_float64(spread),
        crowded=as_float64(_crowded(logits)), correct=as_float64(logits.argmax(1) == batch.y),
    )  # fmt: skip
    return LossGradients({site: by_call[site] for site in sites if site in by_call}, whole)


def _moved(batch: Subject, grad: Tensor, seen: Tensor, logits: Tensor, margin: Tensor) -> dict[str, Tensor]:
    """`fidelity`, `fidelity_small`, `still`, `unseen` and `randomized` of EndToEndNumbers."""
    move = batch.perturbed - batch.x
    predicted = (per_image(grad, len(batch.x)) * per_image(move, len(batch.x))).sum(1)
    floor = _ROUNDING * torch.finfo(logits.dtype).eps * logits.abs().amax(1)
    with torch.no_grad():
        far, near = batch.logits(batch.x + move), batch.logits(batch.x + SMALL * move)
        without_gradient = batch.logits(batch.x + move * ~seen)
        drawn, redrawn = batch.logits(batch.x), replace(batch, seed=batch.seed + 1).logits(batch.x)
    response = (far - logits).norm(dim=1)
    unseen = torch.where(response > 0, (without_gradient - logits).norm(dim=1) / response, torch.nan)

    def fidelity(share: float, moved: Tensor) -> Tensor:
        change = losses.margin(moved, batch.y) - margin
        return as_float64(torch.where(change.abs() > floor, agreement(share * predicted, change), torch.nan))

    return {"fidelity": fidelity(1.0, far), "fidelity_small": fidelity(SMALL, near),
            "still": as_float64((far == logits).all(1)), "unseen": as_float64(unseen),
            "randomized": as_float64((redrawn - drawn).norm(dim=1) > floor)}  # fmt: skip


def _grad_or_zeros(value: Tensor, point: Tensor) -> Tensor:
    """The gradient of the sum of `value` with respect to `point`; zeros if there is none."""
    return gradients_or_zeros(value.sum(), [point], retain_graph=True)[0]


def _summarized(grad: Any, count: int) -> CallGradient:
    # Double precision: the square of a gradient of 1e-30 would be zero in fp32, and 8 bits know hardly any operation.
    parts = [per_image(part, count).double() for part in floats(grad)]
    rows = torch.cat(parts, 1) if parts else torch.zeros(count, 1, device="cpu")
    norm, zero, nonfinite = rows.norm(dim=1), (rows == 0).all(1), (~rows.isfinite()).any(1)
    return CallGradient(as_float64(norm), as_float64(zero), as_float64(nonfinite))


def _lost(grad: Tensor) -> Tensor:
    # A constant added to all logits changes none of our losses, so the gradient sums to zero unless rounding took part.
    size = grad.double().abs().sum(1)
    return (size == 0) | (grad.double().sum(1).abs() > _LOST * size) | ~size.isfinite()


def _probabilities(logits: Tensor) -> Tensor:
    return (logits >= 0).all(1) & ((logits.sum(1) - 1).abs() < 5e-3)


def _ties(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`rivals` and `spread` of EndToEndNumbers."""
    is_true = F.one_hot(y, logits.shape[1]).bool()
    true, wrong = logits[is_true], logits[~is_true].reshape(len(y), -1)
    if wrong.shape[1] < 3:
        return torch.full_like(true, torch.nan), torch.full_like(true, torch.nan)
    chance = wrong.softmax(1)
    rivals = (-(chance * chance.clamp(min=1e-300).log()).sum(1)).exp() / wrong.shape[1]
    return rivals, wrong.std(1) / (true - wrong.mean(1)).abs().clamp(min=1e-300)


def _crowded(logits: Tensor) -> Tensor:
    least, most, others = logits.amin(1, keepdim=True), logits.amax(1, keepdim=True), logits.shape[1] - 2
    near = torch.minimum(logits - least, most - logits) <= _NEAR * (most - least)
    return (near.sum(1) - 2).clamp(min=0) / max(others, 1)


def _concatenated(parts: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    return [torch.cat(column) for column in zip(*parts, strict=True)]
