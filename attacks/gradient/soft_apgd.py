"""Soft APGD: Auto-PGD on gradients that see past the kinks of ReLU and max pooling.

Ours: APGD (`apgd.py`) with another backward pass, in which kinks are softened (`robustkit.nethook.soft_kinks`) as in
ConBP and BPA, which look for examples that transfer. Logits, losses and verdicts are the network's own.
Where a gradient ends in front of a flat loss, because all that could still be switched is off, a softened one leads on.
On images of a network trained with TRADES on MNIST that 100 steps of APGD left near the boundary, two restarts of 50
steps break as many as a Square of 5,000 queries; see bench/README.md.
Bad at: networks without kinks (GELU, average pooling) and TorchScript, where it is APGD.
"""

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass

from torch import nn

from robustkit.nethook import soft_kinks
from robustkit.primitives.protocol import HookedAttack, State

from .apgd import APGD


@dataclass(frozen=True)
class SoftAPGD(APGD, HookedAttack):
    """APGD on softened gradients.

    Args:
        activations: width of the transition at an activation's kink, of the largest absolute value among its inputs.
        pooling: temperature of the softmax by which max pooling passes gradients on, in the same unit.
    """

    _: KW_ONLY
    activations: float = 0.03
    pooling: float = 0.006

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("activations", "pooling")

    def hooks(self, network: nn.Module, state: State) -> AbstractContextManager[None]:
        return soft_kinks(self.activations, self.pooling)
