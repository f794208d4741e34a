"""Small networks, each with a property that makes hooks difficult."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from robustkit.nethook.structure import tensors


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    """A network with the same weights every time; the global generator does not change."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


def images(count: int = 4, channels: int = 3, size: int = 8, seed: int = 1) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(seed))


def vectors(count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def grad_in(net: nn.Module, x: Tensor) -> Tensor:
    """The gradient of the sum of the outputs with respect to the input."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(net(x).sum(), x)[0]


class Net(nn.Module):
    """Layers by name, and a function of the network and its input that runs them."""

    def __init__(self, run: Callable[..., object], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *args: object, **kwargs: object) -> object:
        return self.run(self, *args, **kwargs)


class Founding(nn.Module):
    """A convolution, a ReLU, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 2, stride=2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten(0)
        self.fc1 = nn.Linear(160, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc1(self.flatten(self.relu(self.conv(x))))


class Overwriting(nn.Module):
    """The ReLU writes into the convolution's output."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace)
        self.fc = nn.Linear(4 * 64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.conv(x)).flatten(1))


def overwriting_and_copying() -> tuple[nn.Module, nn.Module]:
    """The same network with a ReLU that writes in place and with one that does not."""
    return seeded(Overwriting), seeded(lambda: Overwriting(inplace=False))


class Reusing(nn.Module):
    """One ReLU, two runs."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Linear(6, 6)
        self.a = nn.Linear(6, 6)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        # `a` runs first although `b` is defined first.
        return self.act(self.b(self.act(self.a(x))))


def tied() -> nn.Module:
    """One module with two names."""
    layer = nn.Linear(6, 6)
    return Net(lambda net, x: net.decoder(net.encoder(x).tanh()), encoder=layer, decoder=layer)


class Pair(NamedTuple):
    logits: Tensor
    aux: Tensor | None


@dataclass
class Answer:
    logits: Tensor
    hidden: tuple[Tensor, ...]


def wrapping(wrap: Callable[[Tensor, Tensor], object]) -> nn.Module:
    """The layer `inner` returns two tensors wrapped in something; the network sums all tensors in it."""
    inner = Net(lambda net, x: wrap(net.fc(x), x * 2), fc=nn.Linear(6, 6))
    return Net(lambda net, x: torch.stack(list(tensors(net.inner(x)))).sum(0), inner=inner)


class Mix(nn.Module):
    """Takes keyword arguments only."""

    def forward(self, *, left: Tensor, right: Tensor) -> Tensor:
        return left * right


def keyworded() -> nn.Module:
    return Net(lambda net, x: net.mix(left=x, right=x * 2), mix=Mix())


def residual() -> nn.Module:
    """A skip connection beside a branch whose last layer returns its input in eval mode."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        hidden = net.branch(x)
        return hidden + net.drop(hidden)

    return Net(run, branch=nn.Linear(6, 6), drop=nn.Dropout(0.5)).eval()


def checkpointed(reentrant: bool) -> nn.Module:
    def run(net: nn.Module, x: Tensor) -> Tensor:
        return net.last(checkpoint(nn.Sequential(net.first, net.act), x, use_reentrant=reentrant))

    return Net(run, first=nn.Linear(6, 6), act=nn.Tanh(), last=nn.Linear(6, 3))


class Attention(nn.Module):
    """Self-attention with a fused path that does not call `attn_drop`, as timm's."""

    def __init__(self, width: int = 6, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.fused_attn = heads, True
        self.qkv = nn.Linear(width, 3 * width)
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.fused_attn:
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
            mixed = self.attn_drop(scores.softmax(-1)) @ value
        return self.proj(mixed.transpose(1, 2).flatten(2))


def hook_count(model: nn.Module) -> int:
    """All hooks on all modules and parameters, and torch's records of their options."""
    dicts = [
        value
        for module in model.modules()
        for key, value in vars(module).items()
        if key.startswith("_") and "hooks" in key and isinstance(value, dict)
    ]
    dicts += [hooks for weight in model.parameters() if (hooks := weight._backward_hooks) is not None]
    return sum(len(hooks) for hooks in dicts)
