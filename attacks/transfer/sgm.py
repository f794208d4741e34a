"""SGM: MI-FGSM with gradients that favour skip connections, because such gradients transfer better between models.

Wu et al. 2020, arXiv:2002.05990: the gradient through a residual branch is multiplied by gamma, that of the skip
connection is not; DenseNet's layers count as branches too. The authors' code scales at ReLUs instead, with the same
result, except that it leaves out every block whose number ends in 0, the first of each stage: `variant="reference"`.
Their code also divides by the standard deviation over the batch at each block. A normalised gradient does not depend
on this positive factor, so both variants here leave it out and rows stay independent.
Bad at: networks without skip connections, which it refuses.
"""

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass

from torch import Tensor, nn

from robustkit.errors import UserError, unknown
from robustkit.nethook import edit_grad, select
from robustkit.primitives.protocol import State

from ..gradient._momentum import HookedMomentum
from ._branches import Calls, CallSite, anatomies

VARIANTS = ("paper", "reference")


@dataclass(frozen=True)
class SGM(HookedMomentum):
    """Skip gradient method.

    Args:
        gamma: factor of the gradient through residual branches; the authors take 0.2 for a ResNet-152 and 0.5 for a
            DenseNet-201.
        layers: name or glob of the last layers of branches, such as "layer*.bn2"; None finds them in the graph.
        variant: "paper", or "reference" for the blocks that the authors' code scales.
    """

    _: KW_ONLY
    gamma: float = 0.5
    layers: str | None = None
    variant: str = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "gamma")
        if self.variant not in VARIANTS:
            raise unknown("variant of SGM", str(self.variant), VARIANTS)

    def hooks(self, network: nn.Module, state: State) -> AbstractContextManager[object]:
        ends = self._ends(network)

        def weakened(grad: Tensor, /, *, name: str, call: int) -> Tensor:
            return self.gamma * grad if CallSite(name, call) in ends else grad

        return edit_grad(network, ends.layers, weakened)

    def _ends(self, network: nn.Module) -> Calls:
        if self.layers is not None:
            return Calls.all(select(network, self.layers))
        outlets = [(part, part.outlet(branch)) for part in anatomies(network) for branch in part.branches]
        ends = [(part, place) for part, place in outlets if place is not None and self._scales(place.layer)]
        hidden = any(place is None for _, place in outlets)
        if hidden or not ends:
            what = "a residual branch without a last layer" if hidden else "no residual branch"
            raise UserError(
                f"SGM finds {what} in {type(network).__name__}; name the layers that end one with layers=, or use "
                "mifgsm, which needs none."
            )
        return Calls.of(ends)

    def _scales(self, layer: str) -> bool:
        block = layer.rpartition(".")[0].rpartition(".")[2]
        return self.variant == "paper" or not (block.isdigit() and block.endswith("0"))
