"""Fisher information of the weights on adversarial images: how much each weight matters to what the network knows.

The diagonal of the empirical Fisher matrix, the mean over images of the squared gradient of each one's log-likelihood.
Kirkpatrick et al. 2017, arXiv:1612.00796, use it to weigh a prior around earlier weights; here the images are attacked
first, so that what robustness hangs on is held.
"""

from collections.abc import Collection, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..inner_attack.objectives import Network
from .batchnorm import modes


def fisher(
    ask: Network,
    model: nn.Module,
    network: nn.Module,
    names: Collection[str],
    batches: Iterable[tuple[Tensor, Tensor]],
) -> dict[str, Tensor]:
    """The diagonal, a tensor shaped as the weight for each name.

    Args:
        ask: logits `[B, K]` of the model.
        model: in eval mode meanwhile.
        network: in it, whose weights they are.
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
                loss = F.cross_entropy(ask(image), label)
                grads = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
                for name, grad in zip(weights, grads, strict=True):
                    if grad is not None:
                        total[name] += grad.detach() ** 2
                count += 1
    return {name: value / max(1, count) for name, value in total.items()}
