"""The features of a network in which perceptual attacks measure how alike two images look."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from robustkit.classifier.batch_sizes import BatchSizes
from robustkit.classifier.reference import Reference, exact_answers
from robustkit.errors import UserError
from robustkit.host.failures import described_error
from robustkit.models.loading import load_model
from robustkit.models.preprocessing import network_in
from robustkit.nethook import Trace
from robustkit.primitives.lpips_ball import FeatureMap, Reading, normalised
from robustkit.primitives.perceptual import OWN

_ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish,
    nn.Hardtanh, nn.Softplus, nn.Sigmoid, nn.Tanh,
)  # fmt: skip
_STAGES = tuple(f"layer{number}" for number in range(1, 9))  # torchvision's name for them


class FeatureChoice(Protocol):
    """Whose features are compared; `PerceptualAttack` explains each."""

    @property
    def network(self) -> str | nn.Module:
        """ "self", a name, or a module."""

    @property
    def weights(self) -> str | None:
        """Of a network that is named."""

    @property
    def layers(self) -> str | None:
        """Names joined by "+"."""


@dataclass(frozen=True)
class OwnFeatures:
    """Features of the attacked model: a query has them without a further pass."""

    reference: Reference
    network: nn.Module  # in which layers have their names
    layers: tuple[str, ...]
    size: int
    forwards = 1

    @property
    def label(self) -> str:
        """The layers."""
        return "+".join(self.layers)

    def __call__(self, points: Tensor) -> Tensor:
        """One forward pass of the unmodified model for each point."""
        return exact_answers(self.reference.sizes, f"features {self.label}", points, self._measured)

    @contextmanager
    def watching(self) -> Iterator[Reading]:
        """Read what the layers gave in the last pass."""
        with Trace(self.network, self.layers, detach=False) as trace:
            yield lambda points: _outputs(trace, self.layers)

    def _measured(self, points: Tensor) -> Tensor:
        with torch.no_grad(), Trace(self.network, self.layers) as trace:
            self.reference.forward(points)
        return _outputs(trace, self.layers)


@dataclass(frozen=True)
class OtherFeatures:
    """Features of another network, which takes pixels in [0, 1]; its passes are not those of the attacked model."""

    model: nn.Module
    layers: tuple[str, ...]
    size: int
    sizes: BatchSizes
    forwards = 0

    @property
    def label(self) -> str:
        """The network and its layers."""
        return f"{id(self.model)} {'+'.join(self.layers)}"

    def __call__(self, points: Tensor) -> Tensor:
        """One forward pass of the other network for each point."""
        with torch.no_grad():
            return exact_answers(self.sizes, f"features {self.label}", points, self._measured)

    @contextmanager
    def watching(self) -> Iterator[Reading]:
        """Ask the other network beside the attacked one."""
        yield self._measured

    def _measured(self, points: Tensor) -> Tensor:
        with Trace(network_in(self.model), self.layers, detach=False) as trace:
            self.model(points)
        return _outputs(trace, self.layers).to(points)


def feature_map(choice: FeatureChoice, reference: Reference, images: Tensor) -> FeatureMap:
    """The features that are compared.

    Args:
        choice: says whose; a `PerceptualAttack` is one.
        reference: the attacked model.
        images: some images `[n, *S]` in [0, 1].

    Raises:
        UserError: the network does not take these images, or has no such layers.
    """
    if choice.network == OWN:
        network = network_in(reference.model)
        layers = _layers(network, choice.layers, lambda: reference.forward(images[:2]))
        own = OwnFeatures(reference, network, layers, 0)
        return replace(own, size=own._measured(images[:2]).shape[1])
    model = _other_network(choice).to(images.device, images.dtype)
    sizes = BatchSizes.of(model, reference.sizes.tile, reference.sizes.exact, images.shape[1:])
    try:
        layers = _layers(network_in(model), choice.layers, lambda: model(images[:2]))
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            f"{_name(choice)} does not take these images {list(images.shape[1:])}: {described_error(error)}; give "
            "another network=."
        ) from error
    other = OtherFeatures(model, layers, 0, sizes)
    return replace(other, size=other(images[:2]).shape[1])


def _other_network(choice: FeatureChoice) -> nn.Module:
    if isinstance(choice.network, nn.Module):
        # A copy, so that the caller's module keeps its modes.
        model: nn.Module = copy.deepcopy(choice.network)
    else:
        model = load_model(choice.network, weights=choice.weights)
    return model.eval().requires_grad_(False)


def _name(choice: FeatureChoice) -> str:
    return choice.network if isinstance(choice.network, str) else type(choice.network).__name__


def _layers(network: nn.Module, named: str | None, forward: Callable[[], object]) -> tuple[str, ...]:
    """The layers that a user names, or the usual ones among those that run."""
    if named is not None:
        return tuple(each.strip() for each in named.split("+"))
    stages = tuple(name for name, _ in network.named_children() if name in _STAGES)
    if len(stages) > 1:
        return stages
    with torch.no_grad(), Trace(network, "*", strict=False) as trace:
        forward()
    ran = {call.name: call for call in trace.calls if isinstance(call.output, Tensor) and call.output.dim() > 1}
    modules = dict(network.named_modules())
    active = tuple(name for name in ran if isinstance(modules[name], _ACTIVATIONS))
    weighted = [name for name in ran if list(modules[name].parameters(recurse=False))]
    # Without activations that are modules: what has weights, but for the logits.
    layers = active or tuple(weighted[:-1] or weighted)
    if not layers:
        raise UserError("No layer of the network has features to compare; name some: layers=NAME+NAME.")
    return layers


def _outputs(trace: Trace, layers: tuple[str, ...]) -> Tensor:
    return normalised([trace[layer].output for layer in layers])
