"""Contrast reduction: the image fades to grey until it is misclassified.

As in foolbox (Rauber et al. 2017, arXiv:1707.04131). Ours differs: the linear search is followed by a bisection, and
with a radius it ends at the surface of the ball.
Bad at: everything but models that depend on contrast; it tries a single direction.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives.rows import along

from ._walk import Walk


@dataclass(frozen=True)
class ContrastReduction(Walk):
    """Images between the clean one and a constant one.

    Args:
        queries: forward passes per trial, at least 2.
        steps: degrees of contrast that are queried.
        halvings: how often the way to the first error among them is halved.
        target: the grey at the end of the way.
    """

    _: KW_ONLY
    target: float = 0.5

    norms = ("Linf", "L2", "L1")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share("target")

    def member(self, x: Tensor, family: Tensor, share: Tensor) -> Tensor:
        return x + along(share, x).to(x) * (self.target - x)
