"""Models whose last output means that the image is rejected, such as a detector behind a classifier.

A rejected adversarial example is no success: the attacker must reach a wrong class whose logit is above that of the
true class and above that of the rejection. So attacks see one logit for both, the larger one, in the place of the true
class; their losses, margins and boundaries are then those of the attacker's task. Carlini & Wagner 2017,
arXiv:1705.07263, give a detector a logit beside those of the classes, and attack both as one network.

Where the two logits are about equal, a step against the larger one raises the other (Bryniarski et al. 2022,
arXiv:2106.15023). So the gradient there is that of both, weighted by their difference. A detector's score may have any
unit, so its distance to the largest logit is scaled to have slopes as steep as those of the classes.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.statistics.randomized_smoothing import ABSTAINS

_WIDTH = 1.0  # of where both count, in units of the largest logit above the median


def of_classes(scores: Tensor) -> Tensor:
    """`[n, K]` the scores of the classes, of `[n, K + 1]`."""
    return scores[:, :-1]


def labels(scores: Tensor) -> Tensor:
    """`[n]` int64 the classes of the largest scores of `[n, K + 1]`; -1 where that is the rejection's."""
    label = scores.argmax(1)
    return torch.where(label == scores.shape[1] - 1, ABSTAINS, label)


def refuse(what: str, name: str, *, rejects: bool) -> None:
    """Refuse a model that rejects, where its last output would count as a class.

    Raises:
        UserError: it rejects.
    """
    if rejects:
        raise UserError(f"{what} does not know rejections, and {name} rejects images; leave out rejects.")


def for_attacker(logits: Tensor, y: Tensor, scale: float) -> Tensor:
    """Logits `[n, K]` of `[n, K + 1]` as an attacker needs them: a rejection is as good for the true class as its own.

    Args:
        logits: the last one is that of the rejection.
        y: `[n]` int64 true classes.
        scale: of the rejection's distance to the largest logit.
    """
    ahead, share = _compared(logits, y, scale)
    share = share.detach()
    larger, weighted = ahead.detach().clamp(min=0), share * ahead
    return _raised(logits, y, larger + (weighted - weighted.detach()))


def near(logits: Tensor, y: Tensor, scale: float, at: Tensor) -> Tensor:
    """As `for_attacker`, but with the weights that the gradient has at another point.

    Between two points the larger lead may change. A gradient that does not show this is right all the same.

    Args:
        logits: `[n, K + 1]`.
        y: `[n]` int64 true classes.
        scale: of the rejection's distance to the largest logit.
        at: `[n, K + 1]` logits at the other points.
    """
    ahead_there, share = _compared(at, y, scale)
    ahead, _ = _compared(logits, y, scale)
    return _raised(logits, y, ahead_there.clamp(min=0) + share * (ahead - ahead_there))


def scale_of(logits_at: Callable[[Tensor], Tensor], images: Tensor) -> float:
    """What the distance of the rejection to the largest logit is multiplied by.

    With it that distance changes with the image as fast as the lead of a class. It is a power of two, so that rounding
    does not change it; 1 where one of the two has no gradient. A rejection with a logit of its own, such as a constant,
    comes nearer to the largest logit where that falls: it is not amplified, or attacks would hold the true class up.

    Args:
        logits_at: logits `[n, K + 1]` of images, with a gradient.
        images: `[n, *S]` made up, so that a model has one scale.
    """
    with torch.enable_grad():
        points = images.detach().clone().requires_grad_()
        logits = logits_at(points).double()
        first, second = of_classes(logits).topk(2, 1).values.unbind(1)
        of_class, distance, alone = (_slope(each, points) for each in (
            first - second, logits[:, -1] - first, logits[:, -1]))  # fmt: skip
    if not (0 < of_class < math.inf and 0 < distance < math.inf):
        return 1.0
    scale = 2.0 ** round(math.log2(of_class / distance))
    return min(scale, 1.0) if alone < distance else scale


def _slope(values: Tensor, points: Tensor) -> float:
    """The mean length of the gradient of values `[n]` at points `[n, *S]`."""
    (grad,) = torch.autograd.grad(values.sum(), points, retain_graph=True, allow_unused=True)
    return 0.0 if grad is None else float(grad.double().flatten(1).norm(dim=1).mean())


def _compared(logits: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """`[n, 1]` how far the rejection is above the true class, and its share of the gradient."""
    classes = of_classes(logits)
    most = classes.amax(1, keepdim=True)
    ahead = most + scale * (logits[:, -1:] - most) - classes.gather(1, y.unsqueeze(1))
    # The median, because some networks give classes that are switched off a huge logit.
    width = _WIDTH * (most - classes.median(1, keepdim=True).values).detach()
    # Linear, because the bits of a sigmoid depend on the place in a batch.
    return ahead, (0.5 + ahead / width.clamp(min=torch.finfo(width.dtype).tiny)).clamp(0, 1)


def _raised(logits: Tensor, y: Tensor, amount: Tensor) -> Tensor:
    """`[n, K]` the logits of the classes, that of the true one raised by an amount `[n, 1]`."""
    classes, place = of_classes(logits), y.unsqueeze(1)
    return classes.scatter(1, place, classes.gather(1, place) + amount)
