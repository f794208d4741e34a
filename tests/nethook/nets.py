"""Small networks that do, one each, what hooks stumble over."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    """A network with the same weights every time, without a mark on the global generator."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


def images(count: int = 4, channels: int = 3, size: int = 8, seed: int = 1) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(seed))


def vectors(count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


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


class Tied(nn.Module):
    """One module of two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 6)
        self.decoder = self.encoder

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x).tanh())


class Pair(NamedTuple):
    logits: Tensor
    aux: Tensor | None


@dataclass
class Answer:
    logits: Tensor
    hidden: tuple[Tensor, ...]


class Shaped(nn.Module):
    """A layer that returns its tensors wrapped in something."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.wrap = wrap
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> object:
        return self.wrap(self.fc(x), x * 2)


class Around(nn.Module):
    """Sums all that its inner layer returns."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        from robustkit.nethook.structure import tensors

        return torch.stack(list(tensors(self.inner(x)))).sum(0)


class Keyworded(nn.Module):
    """The layer is called with keywords only."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = Mix()

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(left=x, right=x * 2)


class Mix(nn.Module):
    def forward(self, *, left: Tensor, right: Tensor) -> Tensor:
        return left * right


class Residual(nn.Module):
    """A branch beside a skip connection; the branch ends in a layer that returns its input in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.branch(x)
        return hidden + self.drop(hidden)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.act = nn.Tanh()
        self.last = nn.Linear(6, 3)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        middle = nn.Sequential(self.first, self.act)
        return self.last(checkpoint(middle, x, use_reentrant=self.reentrant))


class Attention(nn.Module):
    """Self-attention with a fused path that goes past `attn_drop`, as timm's."""

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


def count(model: nn.Module) -> int:
    """All hooks on all modules and parameters, and what torch remembers of their options."""
    dicts = [
        value
        for module in model.modules()
        for key, value in vars(module).items()
        if key.startswith("_") and "hooks" in key and isinstance(value, dict)
    ]
    dicts += [hooks for weight in model.parameters() if (hooks := weight._backward_hooks) is not None]
    return sum(len(hooks) for hooks in dicts)
