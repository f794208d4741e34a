"""How well the gradient predicts a layer's response in a random direction of its outputs.

A backward pass that is wrong at few inputs has a fidelity near 1, because the others outweigh them where all of the
response counts. In a random direction `r` of the outputs they do not: there each input adds `(J^T r)_i v_i` with a sign
of its own, so the unit of the error is the root of the sum of their squares. The gradient is taken in the middle of
the small move, where ties are broken. It is wrong only if it predicts neither move: a straight-through gradient of fine
steps predicts the full one.
"""

import torch
from torch import Tensor

from robustkit.nethook.gradients import gradients_or_zeros
from robustkit.primitives import noise

from .layer_function import TINY, LayerFunction, length, per_image


class RandomDirection:
    """What a layer's response to small moves is in a random direction of its outputs, and what its gradient says."""

    def __init__(self, layer: LayerFunction, start: list[Tensor], moves: list[Tensor], plain: Tensor) -> None:
        middle = [(a + v / 2).requires_grad_() for a, v in zip(start, moves, strict=True)]
        with torch.enable_grad():
            output = layer(middle)
        # The same for all images, so that it does not depend on the batch.
        key = noise.keys(layer.seed, torch.zeros(1, dtype=torch.int64, device=plain.device))
        self.direction = noise.normal(key, 0, plain.shape[1:])[0].to(plain)
        self.half = (output.detach() - plain) @ self.direction
        grads = gradients_or_zeros(output, middle, self.direction.expand_as(output))
        parts = torch.cat([per_image(g * v, layer.count) for g, v in zip(grads, moves, strict=True)], 1)
        self.predicted, self.usual = parts.sum(1), length(parts)

    def error(self, response: Tensor, times: Tensor | float = 1.0) -> Tensor:
        """How far a response to so many times the moves is from what the gradient says, in its usual size."""
        obtained = response @ self.direction
        return (times * self.predicted - obtained).abs() / self._unit(obtained, times)

    def bend(self, response: Tensor) -> Tensor:
        """How far the response to the moves is from twice that to half of them, in its usual size."""
        obtained = response @ self.direction
        return (obtained - 2 * self.half).abs() / self._unit(obtained, 1.0)

    def _unit(self, obtained: Tensor, times: Tensor | float) -> Tensor:
        # The moves inside a network are not independent, and their effects may add up to more.
        return torch.hypot(times * self.usual, obtained).clamp(min=TINY)
