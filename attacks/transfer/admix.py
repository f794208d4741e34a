"""Admix: SI-FGSM on copies to which a little of another picture is added.

Wang et al. 2021, arXiv:2102.00436: copy i is the image plus a share of one of another class, divided by 2^i. Ours
differs: the paper draws the other images from the batch, so that an image's result would depend on its neighbours. Here
the other picture is the image itself, cut into blocks that are shuffled: its colours and edges, but no object.
`blocks=1` adds the image to itself, which only changes its contrast.
Bad at: few passes, a step costs 15 queries; the information on other classes that the paper adds.
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
        copies: m2 of the paper, pictures that are added, each in a copy of its own.
        scales: m1 of the paper, copies of each of them at half, a quarter, ... of its contrast.
        portion: eta of the paper, how much of the other picture is added.
        blocks: along each side of it, which are shuffled.
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
