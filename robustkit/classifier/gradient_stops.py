"""The operations of a model's forward that pass no gradient from the image on: what attacks do not see through."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from robustkit.nethook import straight_through
from robustkit.nethook.op_sites import GradientStop


def gradient_stops(forward: Callable[[Tensor], object], model: nn.Module, images: Tensor) -> tuple[GradientStop, ...]:
    """Each operation with its line once, in the order of the forward pass; empty where the forward fails.

    Args:
        forward: runs the model on images.
        model: whose weights get no gradients meanwhile.
        images: `[n, *S]` in [0, 1]; each costs a forward pass.
    """
    points = images.detach().clone().requires_grad_()
    with _frozen(model), torch.enable_grad(), straight_through(len(images)) as stops:
        try:
            forward(points)
        except Exception:  # of the caller's code, which attacks with gradients meet again
            return ()
    return tuple(stops)


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Weights without gradients, so that what has one depends on the image."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_()
