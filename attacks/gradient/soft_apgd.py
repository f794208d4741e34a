"""Soft APGD: Auto-PGD with a backward pass in which ReLU and max pooling are replaced by smooth functions.

Ours: APGD (`apgd.py`), but the backward pass smooths the kinks of these layers (`robustkit.nethook.soft_kinks`). ConBP
and BPA do so to find examples that transfer; here the smoothing weakens from step to step, and the last gradients are
almost the true ones. The forward pass is unchanged, and so are logits, losses and verdicts.
Where the loss is flat because the ReLUs that could change it are off, the smoothed gradient still leads on.
On images of a network trained with TRADES on MNIST that 100 steps of APGD left near the boundary, 30 steps towards each
of three classes break more than a Square of 5,000 queries; see bench/designs.md.
Bad at: networks without kinks (GELU, average pooling) and TorchScript, where it is APGD.
"""

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from functools import cache

from torch import Tensor, nn

from robustkit.nethook import soft_kinks
from robustkit.primitives.protocol import HookedAttack, State

from .._schedules import at, table
from .apgd import APGD


@dataclass(frozen=True)
class SoftAPGD(APGD, HookedAttack):
    """APGD with smoothed gradients.

    Args:
        widest: width of the smooth transition at a kink in the first step, as a share of the largest absolute value
            among the layer's inputs.
        narrowest: the same in the last step; each step multiplies the width by the same factor.
        pooling: temperature of the softmax that replaces max pooling in the backward pass, in units of these widths.
    """

    names_layers = False

    _: KW_ONLY
    widest: float = 0.1
    narrowest: float = 0.003
    pooling: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("widest", "narrowest", "pooling")

    def hooks(self, network: nn.Module, state: State) -> AbstractContextManager[None]:
        width = at(state.queries, widths(self.widest, self.narrowest, self.steps), state.query)
        return soft_kinks(width, self.pooling * width)


@cache
def widths(widest: float, narrowest: float, steps: int) -> Tensor:
    """`[steps]` width of the transition in each step."""
    fall, last = narrowest / widest, max(steps - 1, 1)
    return table(widest * fall ** (step / last) for step in range(steps))
