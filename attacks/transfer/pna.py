"""PNA: MI-FGSM on a vision transformer whose gradients pay no attention: they pass values, never probabilities.

Wei et al. 2022, arXiv:2109.04176, "Pay No Attention": the gradient of every block's attention probabilities is set to
zero, as if they were constants. `patches` below 1 adds the paper's second half, PatchOut: each query shows the
perturbation of some random patches only. The paper's penalty is left out; the authors' code takes it over a batch.
Fused attention, the default everywhere, has no layer that makes probabilities; other codes' hooks then never run and
the attack is silently MI-FGSM. Ours computes attention step by step while it asks.
Bad at: networks without attention, and white-box strength.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook import expose_attention, scale_grad
from robustkit.primitives import noise
from robustkit.primitives.protocol import HookedAttack, State

from ..gradient._momentum import Momentum, MomentumState


@dataclass(frozen=True)
class PNA(Momentum, HookedAttack):
    """Pay no attention.

    Args:
        layers: glob of the attention layers whose probabilities become constants; None is all.
        patches: share of patches that a query shows perturbed; the authors show 130 of 196, which is 0.66.
        patch: side of a patch in pixels.
    """

    _: KW_ONLY
    layers: str | None = None
    patches: float = 1.0
    patch: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "patches")
        self.at_least(1, "patch")

    @contextmanager
    def hooks(self, network: nn.Module, state: State) -> Iterator[None]:
        with expose_attention(network) as opened, scale_grad(network, [*chosen(opened, self.layers).values()], 0.0):
            yield

    def ahead(self, state: MomentumState) -> Tensor:
        if self.patches >= 1:
            return state.point
        return torch.where(self._shown(state), state.point, state.trial.x)

    def _shown(self, state: MomentumState) -> Tensor:
        """`[B, 1, H, W]` bool: the patches that the next query shows perturbed."""
        if state.point.dim() != 4:
            raise UserError("PatchOut needs images [channels, height, width]; use patches=1.")
        rows, columns = (-(-side // self.patch) for side in state.point.shape[2:])
        order = noise.uniform(state.trial.key, state.queries, (rows * columns,)).argsort(dim=1, stable=True).argsort(1)
        shown = (order < round(self.patches * rows * columns)).reshape(-1, 1, rows, columns)
        shown = shown.repeat_interleave(self.patch, 2).repeat_interleave(self.patch, 3)
        return shown[:, :, : state.point.shape[2], : state.point.shape[3]]


def chosen(opened: dict[str, str], layers: str | None) -> dict[str, str]:
    """The attention layers that fit a glob, each with the layer that makes its probabilities."""
    fitting = {name: made for name, made in opened.items() if layers is None or fnmatchcase(name, layers)}
    if not fitting:
        raise UserError(f"No attention layer fits {layers!r}; there are {', '.join(opened)}.")
    return fitting
