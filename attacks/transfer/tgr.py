"""TGR: MI-FGSM on a vision transformer with gradients whose extremes are set to zero at every block.

Zhang et al. 2023, arXiv:2303.15754, token gradient regularisation. At each block the gradients of the attention
probabilities, of query, key and value, and of the MLP are scaled down. In each channel, the tokens with the largest and
the smallest value get a gradient of zero; for a head's probabilities, their rows and columns do. The factors are the
authors'. Their hooks are on a dropout layer that does nothing in eval mode, and so change the gradient of the softmax's
input instead of its output: `variant="reference"`. Ours differs: each image has its own extremes, where the authors'
code uses those of the batch's first image for all. Attention is computed step by step during queries, because hooks do
not run in fused attention.
Bad at: networks without attention, and white-box strength.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.errors import UserError, unknown
from robustkit.nethook import edit_grad, expose_attention
from robustkit.nethook.hooked import Inputs, Visit, hooked
from robustkit.primitives.protocol import State

from ..gradient._momentum import HookedMomentum
from .pna import chosen

VARIANTS = ("paper", "reference")


@dataclass(frozen=True)
class TGR(HookedMomentum):
    """Token gradient regularisation.

    Args:
        attention: factor of the gradients of attention probabilities.
        qkv: factor of the gradients of query, key and value.
        mlp: factor of the gradients of the layer called `mlp` beside each attention.
        layers: glob of the attention layers; None is all.
        variant: "paper" edits the gradients of probabilities, "reference" those of the softmax's input.
    """

    _: KW_ONLY
    attention: float = 0.25
    qkv: float = 0.75
    mlp: float = 0.5
    layers: str | None = None
    variant: str = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "attention", "qkv", "mlp")
        if self.variant not in VARIANTS:
            raise unknown("variant of TGR", str(self.variant), VARIANTS)

    @contextmanager
    def hooks(self, network: nn.Module, state: State) -> Iterator[None]:
        with ExitStack() as stack:
            opened = chosen(stack.enter_context(expose_attention(network)), self.layers)
            names = dict(network.named_modules())
            tokens = {name: self.qkv for attention in opened for name in _projections(names, attention)}
            tokens |= {_mlp(names, attention): self.mlp for attention in opened}

            def regularised_tokens(grad: Tensor, /, *, name: str, call: int) -> Tensor:
                return tokens[name] * without_extreme_tokens(grad)

            # A model may hold attention that it does not call; what the user chose must run.
            every, probabilities = self.layers is not None, list(opened.values())
            stack.enter_context(edit_grad(network, list(tokens), regularised_tokens, every=every))
            if self.variant == "paper":
                stack.enter_context(edit_grad(network, probabilities, self.regularised_pairs, every=every))
            else:
                probe = _BeforeSoftmax(self)
                stack.enter_context(hooked(network, probabilities, probe, strict=every, follows_grad=True))
            yield

    def regularised_pairs(self, grad: Tensor, /, *, name: str, call: int) -> Tensor:
        """The new gradient of attention probabilities."""
        return self.attention * without_extreme_pairs(grad)


def without_extreme_tokens(grad: Tensor) -> Tensor:
    """`[B, tokens..., C]` with zero at the largest and the smallest value of each channel of an image."""
    flat = grad.flatten(1, -2)
    for extreme in (flat.argmax(1, keepdim=True), flat.argmin(1, keepdim=True)):
        flat = flat.scatter(1, extreme, 0.0)
    return flat.reshape(grad.shape)


def without_extreme_pairs(grad: Tensor) -> Tensor:
    """`[B, heads, queries, keys]` with zeros in the rows and columns of each head's largest and smallest value."""
    queries, keys = grad.shape[2:]
    kept = torch.ones_like(grad, dtype=torch.bool)
    for extreme in (grad.flatten(2).argmax(2), grad.flatten(2).argmin(2)):
        row = torch.arange(queries, device=grad.device) == (extreme // keys).unsqueeze(2)
        column = torch.arange(keys, device=grad.device) == (extreme % keys).unsqueeze(2)
        kept = kept & ~(row.unsqueeze(3) | column.unsqueeze(2))
    return grad * kept


class _BeforeSoftmax:
    """Hooks on the softmax's node in the autograd graph: no layer computes its input."""

    def __init__(self, attack: TGR) -> None:
        self.attack = attack

    def before(self, visit: Visit, inputs: Inputs) -> None:
        node = inputs.args[0].grad_fn
        if node is None or "Softmax" not in node.name():
            raise UserError(f"TGR's reference variant finds no softmax before {visit.name!r}; use variant=paper.")

        def edited(grads: tuple[Any, ...], _: tuple[Any, ...]) -> tuple[Any, ...]:
            return (self.attack.regularised_pairs(grads[0], name=visit.name, call=visit.call), *grads[1:])

        node.register_hook(edited)

    def after(self, visit: Visit, inputs: Inputs, output: object) -> None:
        """Leave the output as it is."""


def _projections(names: dict[str, nn.Module], attention: str) -> list[str]:
    """The layers of query, key and value: one in timm, three in an opened nn.MultiheadAttention and in transformers."""
    for projections in (["qkv"], ["q", "k", "v"], ["q_proj", "k_proj", "v_proj"]):
        layers = [f"{attention}.{name}" if attention else name for name in projections]
        if all(layer in names for layer in layers):
            return layers
    raise UserError(f"TGR finds no qkv in attention {attention!r}; choose other attention layers with layers=.")


def _mlp(names: dict[str, nn.Module], attention: str) -> str:
    block = attention.rpartition(".")[0]
    layer = f"{block}.mlp" if block else "mlp"
    if layer not in names:
        raise UserError(f"TGR finds no layer called mlp beside attention {attention!r}; use pna, which needs none.")
    return layer
