"""Batch sizes that give the same bits.

On a CPU the kernels that torch picks, and so the last bits of a logit, depend on the batch size: measured with torch
2.15, a resnet18 answers 16 rows and 192 rows bit for bit alike but 8 rows not, and a small MLP agrees with no other
size at all. Within one size, a row's answer depended neither on its place nor on the other rows. So there is one
reference size, the tile. Any other size is compared with it once, bit for bit, on the rows it was needed for; a size
that differs is answered in tiles from then on. The result of the comparison is remembered as long as the module lives
and is built the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from typing_extensions import Self

from robustkit.primitives.rows import Rows, padded

R = TypeVar("R", bound=Rows)

Sizes = set[tuple[str, int]]

_LEAST = 16  # smaller sizes were never seen to agree on a CPU
_COMPARED: WeakKeyDictionary[nn.Module, dict[object, tuple[Sizes, Sizes]]] = WeakKeyDictionary()


@dataclass
class BatchSizes:
    """The batch sizes in which one model may be queried.

    Args:
        tile: rows of the reference size; every answer is bit-equal to an answer in tiles of this size.
        exact: False on an accelerator, where fixed sizes are kept for speed but bits are not compared.
    """

    tile: int
    exact: bool
    proven: Sizes = field(default_factory=set)
    refused: Sizes = field(default_factory=set)
    _numbers: dict[tuple[int, torch.device], Tensor] = field(default_factory=dict)  # made once: each step needs them

    @classmethod
    def of(cls, network: nn.Module, tile: int, exact: bool, *traits: object) -> Self:
        """The batch sizes of a network, with the results of comparisons in earlier sessions.

        Args:
            network: the caller's own module; only a weak reference to it is kept.
            tile: rows of the reference size.
            exact: see the class.
            traits: whatever else chooses kernels: the shape of the images, the options of the search.
        """
        threads = torch.get_num_threads(), torch.backends.mkldnn.enabled
        proven, refused = _COMPARED.setdefault(network, {}).setdefault(
            (_build(network), threads, *traits), (set(), set())
        )
        return cls(tile, exact, proven, refused)

    @property
    def at_once(self) -> int:
        """Rows in flight where nothing else decides: a tile on a CPU, more on an accelerator."""
        return self.tile if self.exact else 8 * self.tile

    def fit(self, rows: int, slots: int, kind: str) -> int:
        """The smallest good size for `rows` rows in flight out of `slots`: 2, 3, 4, 6, 8, 12, 16, ... or all slots.

        Few sizes, because each costs a comparison on a CPU and a tuning of kernels on an accelerator.
        """
        least = _LEAST if self.exact else 2
        sizes = {base << shift for shift in range(20) for base in (2, 3)} | {slots}
        return min(size for size in sizes if size >= max(rows, least) and self._usable(size, kind))

    def answer(self, ask: Callable[[Tensor], R], rows: int, kind: str, device: torch.device) -> R:
        """`ask` for all rows, in one call if the size is proven, else in tiles.

        Args:
            ask: takes row numbers `[n]`, returns a struct of `n` rows.
            rows: how many rows there are.
            kind: of query; each kind has proofs of its own.
            device: of the rows.
        """
        everything = self._numbers.get((rows, device))
        if everything is None:
            everything = self._numbers[rows, device] = torch.arange(rows, device=device)
        if not self.exact or rows == self.tile or (kind, rows) in self.proven:
            return ask(everything)
        in_tiles = tiled(ask, everything, self.tile)
        if (kind, rows) not in self.refused:
            same = _same_bits(ask(everything), in_tiles)
            (self.proven if same else self.refused).add((kind, rows))
        return in_tiles

    def _usable(self, size: int, kind: str) -> bool:
        return (kind, size) not in self.refused or size % self.tile == 0


def tiled(ask: Callable[[Tensor], R], rows: Tensor, size: int, *, filled: bool = True) -> R:
    """`ask` for row numbers `[n]` in tiles of `size`; with `filled`, repeats fill the last tile up."""
    answers = []
    for tile in torch.split(rows, size):
        answer = ask(padded(tile, size) if filled else tile)
        answers.append(answer if len(answer) == len(tile) else answer.take(torch.arange(len(tile), device=rows.device)))
    return Rows.cat(answers)


def _same_bits(one: Rows, other: Rows) -> bool:
    return all(torch.equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))  # type: ignore[arg-type]


def _build(network: nn.Module) -> tuple[object, ...]:
    """What a network is made of, except for the values of its weights: nothing else chooses kernels."""
    weights = [(weight.shape, weight.stride(), weight.dtype) for weight in (*network.parameters(), *network.buffers())]
    plain = [str(value) for module in network.modules() for key, value in sorted(vars(module).items())
             if isinstance(value, (int, float, str, tuple)) and key != "training"]  # fmt: skip
    return str(network), tuple(weights), tuple(plain)
