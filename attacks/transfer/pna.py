"""PNA: MI-FGSM on a vision transformer with gradients that skip attention probabilities.

Wei et al. 2022, arXiv:2109.04176, "Pay No Attention": the gradient of every block's attention probabilities is set to
zero, as if they were constants. `patches` below 1 adds the paper's second method, PatchOut: each query contains the
perturbation of some random patches only. The paper's penalty is left out; the authors' code sums it over a batch.
Fused attention, the default in torch and timm, has no layer that computes probabilities: the hooks of other
implementations never run there, and the attack is MI-FGSM without a warning. Ours computes attention step by step
during its queries.
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
        patches: share of patches that are perturbed in a query; the authors take 130 of 196, which is 0.66.
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
        with expose_attention(network) as opened:
            probabilities = list(chosen(opened, self.layers).values())
            # A model may have attention that it does not call; a layer that the user named must run.
            with scale_grad(network, probabilities, 0.0, every=self.layers is not None):
                yield

    def ahead(self, state: MomentumState) -> Tensor:
        if self.patches >= 1:
            return state.point
        return torch.where(self._perturbed(state), state.point, state.trial.x)

    def _perturbed(self, state: MomentumState) -> Tensor:
        """`[B, 1, H, W]` bool: the patches that are perturbed in the next query."""
        if state.point.dim() != 4:
            raise UserError("PatchOut needs images [channels, height, width]; use patches=1.")
        rows, columns = (-(-side // self.patch) for side in state.point.shape[2:])
        order = noise.uniform(state.trial.key, state.queries, (rows * columns,)).argsort(dim=1, stable=True).argsort(1)
        mask = (order < round(self.patches * rows * columns)).reshape(-1, 1, rows, columns)
        mask = mask.repeat_interleave(self.patch, 2).repeat_interleave(self.patch, 3)
        return mask[:, :, : state.point.shape[2], : state.point.shape[3]]


def chosen(opened: dict[str, str], layers: str | None) -> dict[str, str]:
    """The attention layers that match a glob, each with the layer that computes its probabilities."""
    matching = {
        name: probabilities for name, probabilities in opened.items() if layers is None or fnmatchcase(name, layers)
    }
    if not matching:
        raise UserError(f"No attention layer fits {layers!r}; there are {', '.join(opened)}.")
    return matching
