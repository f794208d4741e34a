"""LinBP: MI-FGSM on gradients that treat the later ReLUs as linear.

Guo, Li & Chen 2020, arXiv:2012.03528: the forward pass is unchanged; in the backward pass, from some layer on, the
identity replaces the derivative of ReLU. In a residual block, the gradient of the branch would then grow relative to
the skip connection, so it is scaled, image by image, to the length that it has with true derivatives. That takes one
more pass through these branches, which is not counted. As in the authors' code, a ReLU after a sum is not changed.
Bad at: networks without nn.ReLU layers; functional ReLUs cannot be hooked.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook import edit_grad, select
from robustkit.nethook.gradients import gradients
from robustkit.nethook.hooked import Inputs, Visit, hooked
from robustkit.primitives.protocol import State
from robustkit.primitives.rows import along

from ..gradient._momentum import HookedMomentum
from ._branches import Anatomy, Branch, Calls, CallSite, anatomies


@dataclass(frozen=True)
class LinBP(HookedMomentum):
    """Linear backpropagation.

    Args:
        layers: name or glob of the ReLUs that are linear in the backward pass; None takes the later half, which is the
            authors' choice (3-1) in a ResNet-50.
        rescale: scale gradients through residual branches to the length that they have with true derivatives.
    """

    _: KW_ONLY
    layers: str | None = None
    rescale: bool = True

    @contextmanager
    def hooks(self, network: nn.Module, state: State) -> Iterator[None]:
        relus = self._relus(network)
        with ExitStack() as stack:
            if self.rescale:
                stack.enter_context(_true_lengths(network, relus))
            stack.enter_context(hooked(network, relus.layers, _Linear(relus), follows_grad=True))
            yield

    def _relus(self, network: nn.Module) -> Calls:
        if self.layers is not None:
            return Calls.all(select(network, self.layers))
        parts = anatomies(network)
        sums = {branch.sum for part in parts for branch in part.branches if branch.skip is not None}
        calls = [
            (part, place)
            for part in parts
            for node, place in part.made.items()
            if isinstance(network.get_submodule(place.layer), nn.ReLU) and not sums & set(node.all_input_nodes)
        ]
        if not calls:
            raise UserError(
                f"LinBP finds no nn.ReLU in {type(network).__name__}; name the layers to pass linearly with layers=, "
                "or use mifgsm."
            )
        return Calls.of(calls[min((len(calls) + 1) // 2, len(calls) - 1) :])


class _Linear:
    """Hooks that keep a layer's value and give it the gradient of the identity."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def before(self, visit: Visit, inputs: Inputs) -> None:
        if CallSite(visit.name, visit.call) in self.calls:
            # A copy, because the layer may write into its input.
            visit.memo = inputs.args[0].clone()

    def after(self, visit: Visit, inputs: Inputs, output: Tensor) -> Tensor | None:
        # Exact for a ReLU: x + (x - x) or x + (0 - x).
        return None if visit.memo is None else visit.memo + (output - visit.memo).detach()


@dataclass
class _BranchPass:
    """The values and gradients at the two ends of a branch."""

    part: Anatomy
    branch: Branch
    value: list[Tensor] = field(default_factory=list)  # forward, at its start
    grad: list[Tensor] = field(default_factory=list)  # backward, at its end


@contextmanager
def _true_lengths(network: nn.Module, relus: Calls) -> Iterator[None]:
    """Scale the gradient of each branch with linear ReLUs to the length that it has with true ones."""
    heads: dict[CallSite, _BranchPass] = {}
    ends: dict[CallSite, _BranchPass] = {}
    for part in anatomies(network):
        for branch in part.branches:
            inside = [part.made[node] for node in branch.nodes if node in part.made]
            if branch.skip is not None and any(place in relus for place in inside):
                head, end = _border(network, part, branch)
                heads[head] = ends[end] = _BranchPass(part, branch)

    def arrived(grad: Tensor, /, *, name: str, call: int) -> Tensor:
        if CallSite(name, call) in ends:
            ends[CallSite(name, call)].grad.append(grad)
        return grad

    def scaled(grad: Tensor, /, *, name: str, call: int) -> Tensor:
        if CallSite(name, call) not in heads:
            return grad
        passed = heads[CallSite(name, call)]
        true = _true_gradient(network, passed)
        length, true_length = (value.flatten(1).norm(dim=1) for value in (grad, true))
        return grad * along(true_length / torch.where(length > 0, length, 1), grad)

    if not heads:
        yield
        return
    with (
        edit_grad(network, [end.layer for end in ends], arrived),
        hooked(network, [head.layer for head in heads], _Values(heads)),
        edit_grad(network, [head.layer for head in heads], scaled, at="input"),
    ):
        yield


def _true_gradient(network: nn.Module, passed: _BranchPass) -> Tensor:
    """The gradient at the start of a branch with true derivatives, given the gradient at its end."""
    with torch.enable_grad():
        start = passed.value[-1].requires_grad_()
        end = passed.part.replay(network, passed.branch, start)
    grad: Tensor = gradients(end, [start], passed.grad[-1])[0]
    return grad


def _border(network: nn.Module, part: Anatomy, branch: Branch) -> tuple[CallSite, CallSite]:
    """The layers at the two ends of a branch."""
    heads, end = part.heads(branch), part.made.get(branch.end)
    if len(heads) != 1 or end is None:
        raise UserError(
            f"LinBP cannot follow the residual branches of {type(network).__name__}, which do not begin and end with "
            "one layer each; use rescale=False."
        )
    return heads[0], end


class _Values:
    """Hooks that store the inputs of the first layers of branches."""

    def __init__(self, heads: dict[CallSite, _BranchPass]) -> None:
        self.heads = heads

    def before(self, visit: Visit, inputs: Inputs) -> None:
        if CallSite(visit.name, visit.call) in self.heads:
            self.heads[CallSite(visit.name, visit.call)].value.append(inputs.args[0].detach().clone())

    def after(self, visit: Visit, inputs: Inputs, output: object) -> None:
        """Leave the output as it is."""
