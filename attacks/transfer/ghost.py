"""Ghost networks: MI-FGSM whose every query goes to another random variation of the network.

Li et al. 2018, arXiv:1812.03413. Each channel of a skip connection is multiplied by a random number around 1; a
network without skip connections gets dropout after its activations. The steps thus query an ensemble of networks
at the cost of one. Ours differs: each image and query has its own random numbers, where other implementations draw one
set for a whole batch, so that a result does not depend on the other images of the batch.
Bad at: white-box strength, for which the true network is best.
"""

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

from torch import Tensor, nn

from robustkit.errors import UserError, unknown
from robustkit.nethook import edit_output, select
from robustkit.nethook.hooked import Inputs, Visit, hooked
from robustkit.primitives import noise
from robustkit.primitives.protocol import State, TrialCost

from ..gradient._momentum import HookedMomentum
from ._branches import CallSite, anatomies

EROSIONS = ("auto", "skip", "dropout")
# The authors' best values, for a ResNet-v2-50 and an Inception-v3.
_SPREAD = {"skip": 0.22, "dropout": 0.006}
_ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Tanh, nn.Sigmoid)


@dataclass(frozen=True)
class Ghost(HookedMomentum):
    """Ghost networks, ensembled over the iterations.

    Args:
        erosion: "skip" multiplies skip connections, "dropout" drops values after activations; "auto" is "skip" for
            networks with skip connections, else "dropout".
        spread: with "skip", random factors lie in 1 - spread ... 1 + spread; with "dropout", the share of dropped
            values. Lambda in the paper. None is the authors' best value, 0.22 or 0.006.
        layers: name or glob of the layers whose output is changed instead; "auto" is then "dropout".
    """

    _: KW_ONLY
    erosion: str = "auto"
    spread: float | None = None
    layers: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least_or_none(0.0, "spread")
        if self.erosion not in EROSIONS:
            raise unknown("erosion of ghost networks", str(self.erosion), EROSIONS)

    @property
    def cost(self) -> TrialCost:
        # Each error of a variation costs one more forward: the network itself judges it, and is often still correct.
        return TrialCost(2 * self.steps + 1, self.steps)

    def hooks(self, network: nn.Module, state: State) -> AbstractContextManager[object]:
        skips = _skips(network) if self.layers is None and self.erosion != "dropout" else []
        if self.layers is None and self.erosion == "skip" and not skips:
            raise UserError(
                f"Ghost finds no skip connections in {type(network).__name__}, or one that no layer begins; use "
                "erosion=dropout, or name layers to erode with layers=."
            )
        if skips:
            layers = {place.layer: None for skip in skips for place in (skip.source, skip.target)}
            return hooked(network, list(layers), _Eroding(self, state, skips))
        chosen = _activations(network) if self.layers is None else list(select(network, self.layers))
        number = {name: index for index, name in enumerate(chosen)}
        erode = self.scaled if self.erosion == "skip" else self.dropped

        def eroded(output: Tensor, /, *, name: str, call: int) -> Tensor:
            return output * erode(state, output, number[name], call)

        return edit_output(network, chosen, eroded)

    def scaled(self, state: State, like: Tensor, layer: int, call: int) -> Tensor:
        """Random factors around 1, one per channel: axis 1 of feature maps, else the last axis."""
        spread = _SPREAD["skip"] if self.spread is None else self.spread
        axis = 1 if like.dim() == 4 else like.dim() - 1
        factor = 1 + spread * (2 * noise.uniform(*_stream(state, like, layer, call), (like.shape[axis],)) - 1)
        return factor.to(like).reshape(
            len(like), *(like.shape[axis] if at == axis else 1 for at in range(1, like.dim()))
        )

    def dropped(self, state: State, like: Tensor, layer: int, call: int) -> Tensor:
        """Factors of dropout: 0 for dropped values, else 1 / (1 - spread)."""
        spread = _SPREAD["dropout"] if self.spread is None else self.spread
        kept = noise.uniform(*_stream(state, like, layer, call), like.shape[1:]) >= spread
        return kept.to(like) / max(1 - spread, 1e-6)


class _Skip(NamedTuple):
    """A skip connection, as hooks reach it: the value at `source` is added to the output of `target`."""

    source: CallSite
    at: Literal["input", "output"]
    target: CallSite  # the source itself where the skip connection has its own layers


def _skips(network: nn.Module) -> list[_Skip]:
    """The skip connections; none if hooks cannot reach one of them."""
    skips = []
    for part in anatomies(network):
        for branch in part.branches:
            if branch.skip is None:
                continue
            start, end, heads = part.made.get(branch.skip), part.made.get(branch.end), part.heads(branch)
            if branch.skip is not branch.start and start is not None:
                skips.append(_Skip(start, "output", start))
            elif branch.skip is branch.start and end is not None and (start or heads):
                skips.append(_Skip(start, "output", end) if start is not None else _Skip(heads[0], "input", end))
            else:
                return []
    return skips


class _Eroding:
    """Multiplies skip connections by random factors."""

    def __init__(self, ghost: Ghost, state: State, skips: list[_Skip]) -> None:
        self.ghost, self.state = ghost, state
        self.reads = {(skip.source, skip.at) for skip in skips}
        self.targets = {skip.target: (number, skip) for number, skip in enumerate(skips)}
        self.seen: dict[tuple[CallSite, str], Tensor] = {}

    def before(self, visit: Visit, inputs: Inputs) -> None:
        if ((place := CallSite(visit.name, visit.call)), "input") in self.reads:
            self.seen[place, "input"] = inputs.args[0]

    def after(self, visit: Visit, inputs: Inputs, output: Tensor) -> Tensor:
        place = CallSite(visit.name, visit.call)
        if place in self.targets:
            number, skip = self.targets[place]
            value = output if skip.source == place else self.seen[skip.source, skip.at]
            output = output + (self.ghost.scaled(self.state, value, number, 0) - 1) * value
        if (place, "output") in self.reads:
            self.seen[place, "output"] = output
        return output


def _activations(network: nn.Module) -> list[str]:
    activations = [name for name, module in network.named_modules() if isinstance(module, _ACTIVATIONS)]
    if not activations:
        raise UserError(f"Ghost finds no activation in {type(network).__name__}; name layers to erode with layers=.")
    return activations


def _stream(state: State, like: Tensor, layer: int, call: int) -> tuple[Tensor, Tensor]:
    """Key and draw of the numbers of each row at this query, for one call of a layer."""
    if len(like) != len(state):
        raise UserError(f"A layer makes {len(like)} rows out of {len(state)} images; choose others with layers=.")
    return noise.keys(layer * (1 << 16) + call, state.trial.key), state.queries
