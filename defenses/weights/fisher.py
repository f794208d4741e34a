"""Fisher information of the weights on adversarial images: how much each weight matters to the network's predictions.

The diagonal of the empirical Fisher matrix: the mean over images of the squared gradient of their log-likelihood.
Kirkpatrick et al. 2017, arXiv:1612.00796, use it as the precision of a prior around earlier weights. Ours differs: the
images are adversarial, so the prior holds the weights that robustness depends on.
"""

from collections.abc import Collection, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.nethook.gradients import gradients

from ..inner_attack.objectives import Network
from .batchnorm import modes


def fisher(
    logits: Network,
    model: nn.Module,
    network: nn.Module,
    names: Collection[str],
    batches: Iterable[tuple[Tensor, Tensor]],
) -> dict[str, Tensor]:
    """The diagonal: for each name a tensor of the weight's shape.

    Args:
        logits: returns the model's logits `[B, K]`.
        model: put in eval mode meanwhile.
        network: the part of the model that has the weights.
        names: of the network's parameters.
        batches: of adversarial images `[B, *S]` and their classes `[B]`.
    """
    weights = {name: weight for name, weight in network.named_parameters() if name in names}
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    count = 0
    for x, y in batches:
        with modes(model, "eval"), torch.enable_grad():
            # One image at a time: the square of a batch's gradient is not the sum of squares.
            for image, label in zip(torch.split(x, 1), torch.split(y, 1), strict=True):
                loss = F.cross_entropy(logits(image), label)
                grads = gradients(loss, list(weights.values()))
                for name, grad in zip(weights, grads, strict=True):
                    if grad is not None:
                        total[name] += grad.detach() ** 2
                count += 1
    return {name: value / max(1, count) for name, value in total.items()}
