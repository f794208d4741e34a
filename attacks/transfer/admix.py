"""Admix: SI-FGSM on copies to which a little of another image is added.

Wang et al. 2021, arXiv:2102.00436: copy i is the iterate plus a share of an image of another class, divided by 2^i.
Ours differs: the paper takes the other images from the batch, so that the result of an image would depend on its batch.
Here the other image is the image itself with its blocks shuffled: it has the same colours and edges, but no object.
`blocks=1` adds the image to itself, which only changes its contrast.
Bad at: small budgets, because a step costs 15 queries. It lacks what the paper's images show of other classes.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit import limits
from robustkit.primitives.protocol import Trials

from ._copies import Copies
from ._images import as_images, dimmed
from ._shuffling import MOST_BLOCKS, Draw, shuffled


@dataclass(frozen=True)
class Admix(Copies):
    """Admix with the image's own blocks.

    Args:
        copies: number of other images, each added to its own copy; m2 in the paper.
        scales: copies of each sum, divided by 1, 2, 4, ...; m1 in the paper.
        portion: share of the other image that is added; eta in the paper.
        blocks: number of blocks along each side of the image.
    """

    _: KW_ONLY
    copies: int = 3
    scales: int = 5
    portion: float = 0.2
    blocks: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "copies", "scales", "blocks")
        self.at_least(0.0, "portion")
        limits.require_at_most("Admix: blocks", self.blocks, MOST_BLOCKS)

    @property
    def per_step(self) -> int:
        return self.copies * self.scales

    def copied(self, source: Tensor, trials: Trials, number: Tensor) -> Tensor:
        draw = Draw(trials.key, number // self.scales)
        other = shuffled(as_images(trials.x), draw, self.blocks, angle=0.0).reshape(source.shape)
        return dimmed(source + self.portion * other, number % self.scales, self.scales - 1)
