"""Batch sizes that give the same bits.

On a CPU the kernels that torch picks, and so the last bits of a logit, depend on the batch size: measured with torch
2.15, a resnet18 answers 16 rows and 192 rows bit for bit alike but 8 rows not, and a small MLP agrees with no other
size at all. Within one size a row never feels its place or its neighbours. So there is one reference size, and any
other size is used only after it was compared with the reference once, bit for bit, on the very rows it was needed
for; a size that differs is answered in tiles of the reference size for ever after. What was found out about a module is
remembered while it lives and is built as it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from typing_extensions import Self

from robustkit.primitives.rows import padded

# Row numbers [n] -> tensors [n, ...]
Answer = Callable[[Tensor], tuple[Tensor, ...]]

Sizes = set[tuple[str, int]]

_LEAST = 16  # smaller sizes were never seen to agree on a CPU
_FOUND: WeakKeyDictionary[nn.Module, dict[object, tuple[Sizes, Sizes]]] = WeakKeyDictionary()


@dataclass
class Shapes:
    """The sizes that one model may be asked in.

    Args:
        reference: rows per tile; everything is bit-equal to an answer in tiles of this size.
        exact: False on an accelerator, where fixed shapes are kept for speed but bits are not compared.
    """

    reference: int
    exact: bool
    proven: Sizes = field(default_factory=set)
    refused: Sizes = field(default_factory=set)
    _numbers: dict[tuple[int, torch.device], Tensor] = field(default_factory=dict)  # made once: each step needs them

    @classmethod
    def of(cls, network: nn.Module, reference: int, exact: bool, *traits: object) -> Self:
        """The sizes of a network, with what earlier sessions found out about it.

        Args:
            network: the caller's own module; nothing keeps it alive.
            reference: rows per tile.
            exact: see the class.
            traits: whatever else chooses kernels: the images' shape, how the network is searched.
        """
        threads = torch.get_num_threads(), torch.backends.mkldnn.enabled
        proven, refused = _FOUND.setdefault(network, {}).setdefault((_build(network), threads, *traits), (set(), set()))
        return cls(reference, exact, proven, refused)

    def fit(self, rows: int, slots: int, kind: str) -> int:
        """The smallest good size for `rows` rows in flight out of `slots`: 2, 3, 4, 6, 8, 12, 16, ... or all slots.

        Few sizes, because each costs a comparison on a CPU and a tuning of kernels on an accelerator.
        """
        least = _LEAST if self.exact else 2
        sizes = {base << shift for shift in range(20) for base in (2, 3)} | {slots}
        return min(size for size in sizes if size >= max(rows, least) and self._usable(size, kind))

    def answer(self, ask: Answer, rows: int, kind: str, device: torch.device) -> tuple[Tensor, ...]:
        """`ask` for all rows, in one call where its size is proven, else in tiles of the reference size."""
        everything = self._numbers.get((rows, device))
        if everything is None:
            everything = self._numbers[rows, device] = torch.arange(rows, device=device)
        if not self.exact or rows == self.reference or (kind, rows) in self.proven:
            return ask(everything)
        tiles = tiled(ask, everything, self.reference)
        if (kind, rows) not in self.refused:
            whole = ask(everything)
            same = all(torch.equal(one, other) for one, other in zip(whole, tiles, strict=True))
            (self.proven if same else self.refused).add((kind, rows))
        return tiles

    def _usable(self, size: int, kind: str) -> bool:
        return (kind, size) not in self.refused or size % self.reference == 0


def tiled(ask: Answer, rows: Tensor, size: int, *, filled: bool = True) -> tuple[Tensor, ...]:
    """`ask` for row numbers `[n]`, so many at a time, a last tile `filled` up with repeats."""
    answers = [
        tuple(part[: len(tile)] for part in ask(padded(tile, size) if filled else tile))
        for tile in torch.split(rows, size)
    ]
    return tuple(torch.cat(parts) for parts in zip(*answers, strict=True))


def _build(network: nn.Module) -> tuple[object, ...]:
    """What a network is made of, but for the values of its weights: kernels are chosen by nothing else."""
    weights = [(weight.shape, weight.stride(), weight.dtype) for weight in (*network.parameters(), *network.buffers())]
    plain = [str(value) for module in network.modules() for key, value in sorted(vars(module).items())
             if isinstance(value, (int, float, str, tuple)) and key != "training"]  # fmt: skip
    return str(network), tuple(weights), tuple(plain)
