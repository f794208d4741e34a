"""Batch sizes that give the same bits.

On a CPU the kernels that torch picks, and so the last bits of a logit, depend on the batch size: measured with torch
2.15, a resnet18 answers 16 rows and 192 rows bit for bit alike but 8 rows not, and a small MLP agrees with no other
size at all. Within one size a row never feels its place or its neighbours. So there is one reference size, and any
other size is used only after it was compared with the reference once, bit for bit, on the very rows it was needed
for; a size that differs is answered in tiles of the reference size for ever after.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

# Row numbers [n] -> tensors [n, ...]
Answer = Callable[[Tensor], tuple[Tensor, ...]]

_LEAST = 16  # smaller sizes were never seen to agree on a CPU


@dataclass
class Shapes:
    """The sizes that one model may be asked in.

    Args:
        reference: rows per tile; everything is bit-equal to an answer in tiles of this size.
        exact: False on an accelerator, where fixed shapes are kept for speed but bits are not compared.
    """

    reference: int
    exact: bool
    proven: set[tuple[str, int]] = field(default_factory=set)
    refused: set[tuple[str, int]] = field(default_factory=set)

    def fit(self, rows: int, slots: int, kind: str) -> int:
        """The smallest good size for `rows` rows in flight out of `slots`: a power of two, or all slots.

        Few sizes, because each costs a comparison on a CPU and a tuning of kernels on an accelerator.
        """
        least = _LEAST if self.exact else 2
        sizes = {1 << shift for shift in range(20)} | {slots}
        return min(size for size in sizes if size >= max(rows, least) and self._usable(size, kind))

    def answer(self, ask: Answer, rows: int, kind: str, device: torch.device) -> tuple[Tensor, ...]:
        """`ask` for all rows, in one call where its size is proven, else in tiles of the reference size."""
        everything = torch.arange(rows, device=device)
        if not self.exact or rows == self.reference or (kind, rows) in self.proven:
            return ask(everything)
        tiled = self._tiled(ask, everything)
        if (kind, rows) not in self.refused:
            whole = ask(everything)
            same = all(torch.equal(one, other) for one, other in zip(whole, tiled, strict=True))
            (self.proven if same else self.refused).add((kind, rows))
        return tiled

    def _usable(self, size: int, kind: str) -> bool:
        return (kind, size) not in self.refused or size % self.reference == 0

    def _tiled(self, ask: Answer, rows: Tensor) -> tuple[Tensor, ...]:
        answers = []
        for tile in torch.split(rows, self.reference):
            full = torch.cat([tile, tile[:1].expand(self.reference - len(tile))])
            answers.append(tuple(part[: len(tile)] for part in ask(full)))
        return tuple(torch.cat(parts) for parts in zip(*answers, strict=True))
