"""Soft APGD: Auto-PGD on gradients that see past the kinks of ReLU and max pooling.

Ours: APGD (`apgd.py`) with another backward pass, in which kinks are softened (`robustkit.nethook.soft_kinks`) as in
ConBP and BPA, which look for examples that transfer; here the softening fades from step to step, so that the last steps
see the network almost as it is. Logits, losses and verdicts are the network's own.
Where a gradient ends in front of a flat loss, because all that could still be switched is off, a softened one leads on.
On images of a network trained with TRADES on MNIST that 100 steps of APGD left near the boundary, 30 steps towards each
of three classes break more than a Square of 5,000 queries; see bench/README.md.
Bad at: networks without kinks (GELU, average pooling) and TorchScript, where it is APGD.
"""

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from robustkit.nethook import soft_kinks
from robustkit.primitives.protocol import HookedAttack, State

from .apgd import APGD


@dataclass(frozen=True)
class SoftAPGD(APGD, HookedAttack):
    """APGD on softened gradients.

    Args:
        widest: width of the transition at an activation's kink in the first step, of the largest absolute value among
            its inputs.
        narrowest: the same in the last step; between them it falls by one factor a step.
        pooling: temperature of the softmax by which max pooling passes gradients on, in units of these widths.
    """

    names_layers = False

    _: KW_ONLY
    widest: float = 0.1
    narrowest: float = 0.003
    pooling: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("widest", "narrowest", "pooling")

    @cached_property
    def _widths(self) -> Tensor:
        """`[steps]` of the transition in each step."""
        fall, last = self.narrowest / self.widest, max(self.steps - 1, 1)
        return torch.tensor([self.widest * fall ** (step / last) for step in range(self.steps)], device="cpu")

    def hooks(self, network: nn.Module, state: State) -> AbstractContextManager[None]:
        steps = state.queries.clamp(max=self.steps - 1)
        width = self._widths.to(steps.device).index_select(0, steps)
        return soft_kinks(width, self.pooling * width)
