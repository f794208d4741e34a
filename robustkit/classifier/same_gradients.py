"""Whether a copy of a network has the input gradients of the original, and not its outputs alone.

A trace forgets where gradients were switched off (`torch.no_grad()`), hooks of the backward pass, and backward passes
of the network's own, so that a straight-through estimator would have a gradient of zero.
"""

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from robustkit.nethook.errors import ReentrantCheckpointError
from robustkit.nethook.gradients import gradients

Logits = Callable[[Tensor], Tensor]  # [n, *S] -> [n, K]
# Of a gradient's length. Rounding moves it by 1e-6 in most images, and by some percent where a kink is crossed.
_APART = 0.05


def same_gradients(original: Logits, copied: Logits, images: Tensor) -> bool:
    """Whether, in at least half of the images `[n, *S]`, the gradients of a sum of logits agree up to rounding."""
    own, other = _gradient(original, images), _gradient(copied, images)
    if own is None or other is None:
        return own is other
    return 2 * int(((own - other).norm(dim=1) <= _APART * own.norm(dim=1)).sum()) >= len(images)


def _gradient(logits_at: Logits, images: Tensor) -> Tensor | None:
    """`[n, D]`, or None where the logits do not depend on the images as autograd sees it."""
    with torch.enable_grad(), suppress(ReentrantCheckpointError):
        query = images.detach().clone().requires_grad_()
        logits = logits_at(query)
        if logits.requires_grad:
            weights = torch.linspace(-1, 1, logits.shape[1], dtype=logits.dtype, device=logits.device)
            (grad,) = gradients((logits * weights).sum(), [query])
            return None if grad is None else grad.flatten(1)
    return None
