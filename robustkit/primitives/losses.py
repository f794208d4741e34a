"""The losses that attacks maximise: one number per row, higher where the classification is worse.

Every loss has an untargeted form (away from the label `y`) and a targeted one (towards the class `target`). The
default, `log-odds`, is `log((1 - p_y) / p_y)`. Cross-entropy is its softplus, so both order points alike and their
gradients have the same direction; but the gradient of cross-entropy vanishes in fp32 at margins above about 17, and
that of log-odds never does. `softmax-margin` is the margin of the probabilities in the same manner.
"""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

from robustkit.errors import unknown
from robustkit.primitives.own_losses import OwnLoss
from robustkit.primitives.user_code import address, user_function

_ANY_CLASS: MutableMapping[Tensor, tuple[int, bool]] = (
    WeakIdKeyDictionary()
)  # by tensor of targets: its version, and whether any is a class


@dataclass(frozen=True)
class Loss:
    """Two forms of one loss; both return `[B]` for logits `[B, K]` and int64 classes `[B]`."""

    name: str
    untargeted: Callable[[Tensor, Tensor], Tensor]
    targeted: Callable[[Tensor, Tensor, Tensor], Tensor]
    own: OwnLoss | None = None  # of which it is made, if it is the user's

    @property
    def faults(self) -> tuple[str, ...]:
        """Why results with a loss of the user's own mislead, in a sentence, if anything was noticed."""
        return () if self.own is None or not self.own.fault else (self.own.fault,)

    def __call__(self, logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """The targeted form in rows whose `target` is a class, the untargeted one where it is -1."""
        untargeted = self.untargeted(logits, y)
        if not any_class(target):  # saves time and changes no row's value
            return untargeted
        return torch.where(target >= 0, self.targeted(logits, y, target.clamp(min=0)), untargeted)


def any_class(target: Tensor) -> bool:
    """Whether any row of `target` `[B]` is a class, and not -1."""
    if target.device.type == "cpu" or target.is_inference():
        return bool((target >= 0).any())
    # A GPU answers once it has computed all that was queued before. Targets change only where a trial takes the slot of
    # another one, which writes into the tensor or makes a new one; so the answer is remembered for as long.
    version, answer = _ANY_CLASS.get(target, (-1, False))
    if version != target._version:
        answer = bool((target >= 0).any())
        _ANY_CLASS[target] = target._version, answer
    return answer


LossFunction = Callable[[Tensor, Tensor], Tensor]  # logits [B, K] and classes [B] -> [B]


def loss(name: str | LossFunction | Loss) -> Loss:
    """The loss called `name`: log-odds, ce, margin, dlr, logit, softmax-margin, or one of your own.

    Args:
        name: also "path/file.py:function", or the function itself: `function(logits, y)` returns one number per row,
            larger where the classification is worse. Towards a target class its negative is maximised.

    Raises:
        UserError: there is no such loss.
    """
    if isinstance(name, Loss):
        return name
    where = address(name) if isinstance(name, str) else None
    if where is not None:
        return _own_loss(where.name, user_function(where))
    if isinstance(name, str) or not callable(name):
        if name not in LOSSES:
            raise unknown("loss", str(name), LOSSES)
        return LOSSES[name]
    return _own_loss(getattr(name, "__name__", type(name).__name__), name)


def _own_loss(name: str, function: Callable[..., object]) -> Loss:
    own = OwnLoss(name, function)
    return Loss(name, own.untargeted, own.targeted, own)


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """`max_{j != y} z_j - z_y` `[B]`: positive exactly where the prediction is wrong. Carlini & Wagner 2017."""
    return without(logits, y).amax(1) - _pick(logits, y)


def _margin_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    return _pick(logits, target) - _pick(logits, y)


def _ce(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y, reduction="none")


def _ce_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    return -F.cross_entropy(logits, target, reduction="none")


def log_odds(logits: Tensor, y: Tensor) -> Tensor:
    """`[B]` logarithm of the odds against `y`: of `(1 - p_y) / p_y`."""
    return without(logits, y).logsumexp(1) - _pick(logits, y)


def _log_odds_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    return -log_odds(logits, target)


def _logit(logits: Tensor, y: Tensor) -> Tensor:
    # Zhao et al. 2021, arXiv:2012.11207: towards a class, its logit alone; no gradient fades as the class gets likely.
    return -_pick(logits, y)


def _logit_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    return _pick(logits, target)


def _dlr(logits: Tensor, y: Tensor) -> Tensor:
    # Croce & Hein 2020, arXiv:2003.01690, section 4: invariant to shift and scale of the logits; needs three classes.
    if logits.shape[1] < 3:
        return margin(logits, y)
    top = logits.topk(3, dim=1).values
    return margin(logits, y) / (top[:, 0] - top[:, 2]).clamp(min=1e-12)


def _dlr_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    # The targeted form of the same paper. Its denominator needs the third and the fourth largest logit.
    gain = _margin_targeted(logits, y, target)
    if logits.shape[1] < 4:
        return gain
    top = logits.topk(4, dim=1).values
    return gain / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2).clamp(min=1e-12)


def log_wrong(logits: Tensor, y: Tensor) -> Tensor:
    """`[B]` logarithm of the probability of all classes but `y`, which vanishes in no precision."""
    return F.logsigmoid(log_odds(logits, y))


def _softmax_margin(logits: Tensor, y: Tensor) -> Tensor:
    # Sriramanan et al. 2020, arXiv:2011.14969, and Xie et al. 2024, arXiv:2411.15210: max_{j != y} p_j - p_y. Here the
    # logarithm of one plus it, which orders points alike, has a gradient of the same direction and does not saturate:
    # with r = 1 - p_y and q = max_{j != y} p_j / r, the margin is r (1 + q) - 1.
    wrong = without(logits, y)
    return log_wrong(logits, y) + (wrong.amax(1) - wrong.logsumexp(1)).exp().log1p()


def _softmax_margin_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    wrong = without(logits, y)
    return log_wrong(logits, y) + (_pick(logits, target) - wrong.logsumexp(1)).exp().log1p()


def wrong_classes(logits: Tensor, y: Tensor, most: int) -> Tensor:
    """`[B, C]` int64 the wrong classes of logits `[B, K]`, at most `most`: the likeliest first, ties by number."""
    order = without(logits.detach(), y).sort(dim=1, descending=True, stable=True).indices
    return order[:, : min(most, logits.shape[1] - 1)]


def _pick(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes.unsqueeze(1)).squeeze(1)


def without(logits: Tensor, y: Tensor) -> Tensor:
    """`[B, K]` logits in which that of class `y` `[B]` is lower than any."""
    return logits.scatter(1, y.unsqueeze(1), -torch.inf)


LOSSES: Mapping[str, Loss] = {
    each.name: each
    for each in (
        Loss("log-odds", log_odds, _log_odds_targeted),
        Loss("ce", _ce, _ce_targeted),
        Loss("margin", margin, _margin_targeted),
        Loss("dlr", _dlr, _dlr_targeted),
        Loss("logit", _logit, _logit_targeted),
        Loss("softmax-margin", _softmax_margin, _softmax_margin_targeted),
    )
}
