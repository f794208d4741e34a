"""A prior over the weights: one precision and one centre per parameter, added to the gradient.

Maximum a posteriori is maximum likelihood with a prior: minimising `loss + precision / 2 * |w - centre|^2` for every
weight. Precision 0 is maximum likelihood, centre 0 is weight decay, the pretrained weights as centre are L2-SP
(Li et al. 2018, arXiv:1802.01483), and a frozen weight is the limit of infinite precision. A Gaussian of standard
deviation `std` has precision `1 / (N std^2)` when the loss is a mean over N images, so the same weight decay is a
weaker prior on fewer images. Before a BatchNorm that uses batch statistics the scale of the weights does not matter,
so there a centre of zero constrains nothing and only sets how far a step goes.

Under AdamW the same pull is taken past the optimizer, as its weight decay is, and is then no exact Gaussian prior.
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
    """What draws one parameter."""

    precision: float | Tensor  # a number, or one per weight
    centre: Tensor | None  # None is zero


@dataclass(frozen=True)
class Prior:
    """The prior of a network: nothing for a parameter without an entry."""

    pulls: Mapping[str, Pull]

    @torch.no_grad()
    def add_to(self, network: nn.Module) -> None:
        """Add the penalty's gradient to each `.grad`; parameters without one stay without."""
        for name, weight in network.named_parameters():
            pull = self.pulls.get(name)
            if pull is not None and weight.grad is not None:
                away = weight if pull.centre is None else weight - pull.centre
                if isinstance(pull.precision, Tensor):
                    weight.grad.addcmul_(away, pull.precision)
                else:
                    # As torch's own weight decay has it, to the bit.
                    weight.grad.add_(away, alpha=pull.precision)

    @torch.no_grad()
    def shrink(self, network: nn.Module, lr: float) -> None:
        """Draw each weight that has a gradient by `lr` times the penalty's own, past the optimizer.

        Loshchilov & Hutter 2019, arXiv:1711.05101: what AdamW does with its weight decay. Adam divides every gradient
        by its size, so a penalty within it would hardly pull where the loss is steep.
        """
        for name, weight in network.named_parameters():
            pull = self.pulls.get(name)
            if pull is not None and weight.grad is not None:
                away = weight if pull.centre is None else weight - pull.centre
                weight.sub_(away * (lr * pull.precision))

    @torch.no_grad()
    def penalty(self, network: nn.Module) -> float:
        """The penalty itself, of the weights as they are."""
        total = 0.0
        for name, weight in network.named_parameters():
            pull = self.pulls.get(name)
            if pull is not None:
                away = weight if pull.centre is None else weight - pull.centre
                total += 0.5 * float((pull.precision * away.double() ** 2).sum())
        return total


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
    """The prior of a text such as "none", "gaussian:std=0.2", "l2sp:0.01" or "ewc:1", over weights that learn.

    Args:
        text: its kind and strength; "decay=" is the precision itself, "std=" a standard deviation.
        network: as it is before the training; its weights are the centre of "l2sp" and "ewc".
        images: N, how many the loss is a mean over.
        fresh: parameters without pretrained values, such as a new head: their centre is zero.
        fisher: precision per weight for "ewc".
        decay_norms: whether BatchNorm's weights and biases are covered.
        names: of the weights that learn; None are those that require a gradient now.

    Raises:
        UserError: there is no such prior, or its strength is no positive number.
    """
    kind, rest = _parsed(text)
    if kind == "none":
        return Prior({})
    precision = _precision(text, rest, images)
    spared = set() if decay_norms else _norms_and_biases(network)
    learning = {name for name, weight in network.named_parameters() if weight.requires_grad} if names is None else names
    pulls = {}
    for name, weight in network.named_parameters():
        if name in spared or name not in learning:
            continue
        centred = kind in ("l2sp", "ewc") and name not in fresh
        strength: float | Tensor = precision
        if kind == "ewc" and centred:
            assert fisher is not None, "an EWC prior without its Fisher information"
            strength = precision * fisher[name]
        pulls[name] = Pull(strength, weight.detach().clone() if centred else None)
    return Prior(pulls)


def std_of(precision: float, images: int) -> float:
    """The standard deviation of the Gaussian that a weight decay stands for: `1 / sqrt(N precision)`."""
    return math.inf if precision == 0 else 1 / math.sqrt(images * precision)


def both_ways(text: str, images: int) -> str | None:
    """The strength of a prior as a weight decay and as a standard deviation, in words; None for no prior.

    Raises:
        UserError: there is no such prior.
    """
    kind, rest = _parsed(text)
    if kind == "none":
        return None
    decay = _precision(text, rest, images)
    return f"weight decay {decay:.3g}, standard deviation {std_of(decay, images):.3g} over {images} images"


def _parsed(text: str) -> tuple[str, str]:
    """Kind and strength."""
    kind, colon, rest = text.strip().lower().partition(":")
    if kind not in _KINDS:
        raise unknown("prior", kind, _KINDS)
    if kind == "none" and colon:
        raise _refused(text)
    return kind, rest


def _refused(text: str) -> UserError:
    return UserError(f"{text!r} is no prior; write none, gaussian:decay=5e-4, gaussian:std=0.2, l2sp:0.01 or ewc:1.")


def _precision(text: str, rest: str, images: int) -> float:
    key, equals, value = rest.partition("=")
    try:
        number = float(value if equals else key)
    except ValueError:
        number = -1.0
    if (equals and key not in ("std", "decay")) or not 0 < number < math.inf:
        raise _refused(text)
    return 1 / (images * number**2) if key == "std" else number


def _norms_and_biases(network: nn.Module) -> set[str]:
    return {
        f"{layer}.{name}" if layer else name
        for layer, module in network.named_modules()
        for name, _ in module.named_parameters(recurse=False)
        if isinstance(module, NORMS) or name == "bias"
    }
