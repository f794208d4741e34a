"""BSR: MI-FGSM along the gradient averaged over copies whose blocks are shuffled and rotated.

Wang et al. 2024, arXiv:2308.10299: the image is cut into strips of random widths (rows or columns), and each strip into
blocks. Strips are shuffled in the image, blocks in their strip, and each block is rotated by a random angle. The
authors' toolbox, TransferAttack, takes 3 x 3 blocks; it left the rotation out by mistake (its issue 59), and the
versions that rotate turn whole strips.
Bad at: small budgets, because a step costs 20 queries; tiny images such as digits, where MI-FGSM transfers better.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit import limits
from robustkit.primitives.protocol import Trials

from ._copies import Copies
from ._images import as_images
from ._shuffling import MOST_BLOCKS, Draw, shuffled


@dataclass(frozen=True)
class BSR(Copies):
    """Block shuffle and rotation.

    Args:
        copies: copies per step; N in the paper.
        blocks: number of blocks along each side; n in the paper.
        angle: largest rotation, in degrees; tau in the paper.
    """

    _: KW_ONLY
    copies: int = 20
    blocks: int = 2
    angle: float = 24.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "copies", "blocks")
        limits.require_at_most("BSR: blocks", self.blocks, MOST_BLOCKS)
        self.at_least(0.0, "angle")

    @property
    def per_step(self) -> int:
        return self.copies

    def copied(self, source: Tensor, trials: Trials, number: Tensor) -> Tensor:
        images, draw = as_images(source), Draw(trials.key, number)
        return shuffled(images, draw, self.blocks, self.angle).reshape(source.shape)
