"""The operations of a model's forward that pass no gradient from the image on: what attacks do not see through."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from robustkit.nethook import restored, straight_through
from robustkit.nethook.op_sites import GradientStop
from robustkit.nethook.structure import tensors
from robustkit.primitives import noise


def gradient_stops(forward: Callable[[Tensor], object], model: nn.Module, image: Tensor) -> tuple[GradientStop, ...]:
    """Each operation with its line once, in the order of the forward pass; empty where the forward fails.

    Also those that a clean image does not meet, such as a purifier behind a detector of attacks: noise is sent, too.

    Args:
        forward: runs the model on images.
        model: whose weights get no gradients meanwhile; it comes back as it was.
        image: `[1, *S]` in [0, 1]; it costs two forward passes, and as many backward passes where anything stops them.
    """
    key = torch.zeros(1, dtype=torch.int64, device=image.device)
    random = noise.uniform(key, 0, image.shape[1:]).to(image)
    stops = (stop for points in (image, random) for stop in _stops(forward, model, points))
    return tuple(dict.fromkeys(stops))


def _stops(forward: Callable[[Tensor], object], model: nn.Module, images: Tensor) -> tuple[GradientStop, ...]:
    points = images.detach().clone().requires_grad_()
    try:
        with restored(model, weights=False), torch.enable_grad():
            model.requires_grad_(False)  # what has a gradient now depends on the image
            with straight_through(len(images)) as stops:
                output = forward(points)
            # Before buffers are restored, which this may need.
            return tuple(stops) if stops and _differentiable(output, points) else ()
    except Exception:  # of the caller's code, which attacks with gradients meet again
        return ()
    finally:
        _forget_graphs(model)


def _differentiable(output: object, points: Tensor) -> bool:
    """Whether gradients arrive: code under `no_grad` may use operations that torch has no derivative for."""
    parts = [part for part in tensors(output) if part.requires_grad]
    try:
        torch.autograd.grad(parts, points, [torch.ones_like(part) for part in parts], allow_unused=True)
    except RuntimeError:
        return not parts  # a model whose gradients stop everywhere, at integers
    return True


def _forget_graphs(model: nn.Module) -> None:
    """Detach what the model keeps, as its own `detach` would have done."""
    for module in model.modules():
        for kept in (vars(module), module._buffers):
            for name, value in kept.items():
                if isinstance(value, Tensor) and value.grad_fn is not None:
                    kept[name] = value.detach()
