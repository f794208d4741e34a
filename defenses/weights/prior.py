"""A prior over the weights: one precision and one centre per parameter, added to the gradient.

Maximum a posteriori is maximum likelihood with a prior: minimising `loss + precision / 2 * |w - centre|^2` for every
weight. Precision 0 is maximum likelihood; centre 0 is weight decay; the pretrained weights as centre are L2-SP
(Li et al. 2018, arXiv:1802.01483); a frozen weight is the limit of infinite precision. A Gaussian of standard deviation
`std` has precision `1 / (N std^2)` when the loss is a mean over N images, so the same weight decay is a weaker prior on
fewer images. Before a BatchNorm with batch statistics the scale of the weights has no effect on the output, so a prior
with centre 0 only changes the effective step size there.

Under AdamW the gradient of the prior does not pass through the optimizer, as with its weight decay, and the result is
not an exact Gaussian prior.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustkit.errors import UserError, unknown

from .batchnorm import NORMS

_KINDS = ("none", "gaussian", "l2sp", "ewc")


@dataclass(frozen=True)
class Pull:
    """The prior of one parameter."""

    precision: float | Tensor  # a number, or one per weight
    centre: Tensor | None  # None is zero


@dataclass(frozen=True)
class Prior:
    """The prior of a network; a parameter without an entry has none."""

    pulls: Mapping[str, Pull]

    @torch.no_grad()
    def add_to(self, network: nn.Module) -> None:
        """Add the gradient of the penalty to each `.grad` that is not None."""
        for name, weight in network.named_parameters():
            pull = self.pulls.get(name)
            if pull is not None and weight.grad is not None:
                away = weight if pull.centre is None else weight - pull.centre
                if isinstance(pull.precision, Tensor):
                    weight.grad.addcmul_(away, pull.precision)
                else:
                    # The same operation as torch's weight decay, so the same bits.
                    weight.grad.add_(away, alpha=pull.precision)

    @torch.no_grad()
    def shrink(self, network: nn.Module, lr: float) -> None:
        """Move each weight that has a gradient by `-lr` times the gradient of the penalty, without the optimizer.

        Loshchilov & Hutter 2019, arXiv:1711.05101: AdamW applies weight decay this way. Adam divides every gradient by
        its size, so a penalty in the gradient would have little effect where the loss is steep.
        """
        for name, weight in network.named_parameters():
            pull = self.pulls.get(name)
            if pull is not None and weight.grad is not None:
                away = weight if pull.centre is None else weight - pull.centre
                weight.sub_(away * (lr * pull.precision))


def prior(
    text: str,
    network: nn.Module,
    images: int,
    *,
    fresh: Collection[str] = (),
    fisher: Mapping[str, Tensor] | None = None,
    decay_norms: bool = True,
    names: Collection[str] | None = None,
) -> Prior:
    """The prior of a text such as "none", "gaussian:std=0.2", "l2sp:0.01" or "ewc:1", over the weights that learn.

    Args:
        text: kind and strength; "decay=" gives the precision, "std=" a standard deviation.
        network: as it is before the training; its weights are the centre of "l2sp" and "ewc".
        images: N, the number of training images; the loss is a mean over them.
        fresh: parameters without pretrained values, such as a new head: their centre is zero.
        fisher: precision per weight for "ewc".
        decay_norms: whether the prior covers BatchNorm's weights and all biases, those inside of attention and of
            recurrent layers too. It covers weights of LayerNorm and GroupNorm in any case.
        names: of the weights that learn; None takes those that require a gradient now.

    Raises:
        UserError: there is no such prior, or its strength is not a positive number.
    """
    kind, rest = _parsed(text)
    if kind == "none":
        return Prior({})
    precision = _precision(text, rest, images)
    excluded = set() if decay_norms else _norms_and_biases(network)
    learning = {name for name, weight in network.named_parameters() if weight.requires_grad} if names is None else names
    pulls = {}
    for name, weight in network.named_parameters():
        if name in excluded or name not in learning:
            continue
        centred = kind in ("l2sp", "ewc") and name not in fresh
        strength: float | Tensor = precision
        if kind == "ewc" and centred:
            assert fisher is not None, "an EWC prior without its Fisher information"
            strength = precision * fisher[name]
        pulls[name] = Pull(strength, weight.detach().clone() if centred else None)
    return Prior(pulls)


def std_of(precision: float, images: int) -> float:
    """The standard deviation of the Gaussian prior that equals a weight decay: `1 / sqrt(N precision)`."""
    return math.inf if precision == 0 else 1 / math.sqrt(images * precision)


def _parsed(text: str) -> tuple[str, str]:
    """Kind and strength."""
    kind, colon, rest = text.strip().lower().partition(":")
    if kind not in _KINDS:
        raise unknown("prior", kind, _KINDS)
    if kind == "none" and colon:
        raise _invalid(text)
    return kind, rest


def _invalid(text: str) -> UserError:
    return UserError(f"{text!r} is not a prior; write none, gaussian:decay=5e-4, gaussian:std=0.2, l2sp:0.01 or ewc:1.")


def _precision(text: str, rest: str, images: int) -> float:
    key, equals, value = rest.partition("=")
    try:
        number = float(value if equals else key)
    except ValueError:
        number = -1.0
    if (equals and key not in ("std", "decay")) or not 0 < number < math.inf:
        raise _invalid(text)
    try:
        precision = 1 / (images * number**2) if key == "std" else number
    except ArithmeticError:  # the square of a float overflows, or is zero
        raise _invalid(text) from None
    if precision > torch.finfo(torch.float32).max:
        raise _invalid(text)
    return precision


def _norms_and_biases(network: nn.Module) -> set[str]:
    return {
        f"{layer}.{name}" if layer else name
        for layer, module in network.named_modules()
        for name, _ in module.named_parameters(recurse=False)
        if isinstance(module, NORMS) or "bias" in name
    }
