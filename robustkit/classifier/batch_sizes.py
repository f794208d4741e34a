"""Batch sizes that give the same bits.

On a CPU the kernels that torch picks, and so the last bits of a logit, depend on the batch size: measured with torch
2.15, a resnet18 answers 16 rows and 192 rows bit for bit alike but 8 rows not, and a small MLP agrees with no other
size at all. So there is one reference size, the tile. Before its first use it is proven that a row's answer depends
neither on its place in the tile nor on the other rows; where it does, fewer rows of a tile are used, or one at a time
(`robustkit.classifier.batch_layout`). Any other size is compared with the tile once, bit for bit, on made-up images
and on the rows it was needed for; a size that differs is answered in tiles from then on. A size below the tile is
answered in a tile that is filled up, until the filling has cost as much as the comparison. The results are remembered
as long as the module lives and is built the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from typing_extensions import Self

from robustkit.classifier.batch_layout import BatchLayout, Probe, agrees, asked, best_layout, same_bits
from robustkit.classifier.memory import half_of
from robustkit.primitives import noise
from robustkit.primitives.rows import Rows, along

R = TypeVar("R", bound=Rows)

Sizes = set[tuple[str, int]]
Layouts = dict[str, BatchLayout]
Filling = dict[tuple[str, int], int]

_LIGHT = 1 << 20  # weights times values of an image: a bound on its multiplications, unless layers are used again
_TILES = 4  # of a light network at once: bench/coordinator.py took 11.2 s with one, 7.1 s with four, 7.0 s with eight
_LEAST = 16  # smaller sizes were never seen to agree on a CPU
_COMPARISON = 4  # batches of a size that comparing it takes
_KEPT = 1 << 19  # values of made-up images that are kept
_WORTH_A_NOTE = 0.8  # share of a batch's rows that are used: with more, hardly any time is lost
_COMPARED: WeakKeyDictionary[nn.Module, dict[object, tuple[Sizes, Sizes, Layouts, Filling]]] = WeakKeyDictionary()


@dataclass
class BatchSizes:
    """The batch sizes in which one model may be queried.

    Args:
        tile: rows of the reference size; every answer is bit-equal to an answer in tiles of this size.
        exact: False on an accelerator, where fixed sizes are kept for speed but bits are not compared.
        watched: False where torch's operations do not show, as in compiled code.
        compact: whether each row costs something, so that there are no rows that only fill a batch.
        light: whether a tile of the network takes less time than the engine's step, so that more rows save time.

    Attributes:
        proven: other sizes with the bits of the tile, of each kind of query.
        refused: sizes with other bits.
        layouts: how the rows of each kind of query are laid out in tiles.
        filling: rows that filled up a tile so far, of each kind of query and size below the tile.
        fit_into_memory: of what attacks may see, the most rows in flight since memory was too short for more.
        grown: likewise, to how many rows in flight there was memory to grow (`robustkit.classifier.growth`).
    """

    tile: int
    exact: bool
    watched: bool = True
    compact: bool = False
    proven: Sizes = field(default_factory=set)
    refused: Sizes = field(default_factory=set)
    layouts: Layouts = field(default_factory=dict)
    filling: Filling = field(default_factory=dict)
    light: bool = False
    fit_into_memory: dict[str, int] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    _numbers: dict[tuple[int, torch.device], Tensor] = field(default_factory=dict)  # made once: each step needs them

    @classmethod
    def of(cls, network: nn.Module, tile: int, exact: bool, *traits: object, watched: bool = True) -> Self:
        """The batch sizes of a network, with the results of comparisons in earlier sessions.

        Args:
            network: the caller's own module; only a weak reference to it is kept.
            tile: rows of the reference size.
            exact: see the class.
            traits: whatever else chooses kernels: the shape of the images, the options of the search.
            watched: see the class.
        """
        threads = torch.get_num_threads(), torch.backends.mkldnn.enabled
        image = next((each for each in traits if isinstance(each, torch.Size)), torch.Size())
        # What has no weights may be anybody's function.
        light = 0 < sum(each.numel() for each in network.parameters()) * image.numel() <= _LIGHT and len(image) > 0
        compared = _COMPARED.setdefault(network, {}).setdefault(
            (_build(network), threads, tile, *traits), (set(), set(), {}, {})
        )
        return cls(tile, exact, watched, False, *compared, light=light)

    @property
    def at_once(self) -> int:
        """Rows in flight where nothing else decides: a tile on a CPU, more of a light network or on an accelerator."""
        if self.compact or (self.exact and not self.light):
            return self.tile
        return (_TILES if self.exact else 8) * self.tile

    @property
    def note(self) -> str | None:
        """What a user should know about the layouts so far, in a sentence; None where whole tiles are exact."""
        layouts = self.layouts.values()
        if not all(layout.repeats for layout in layouts):
            return (
                "it does not answer the same batch with the same bits again (an operation without a fixed order, or a "
                "model that remembers its calls), so results may differ in single images from run to run."
            )
        slowest = min(layouts, key=lambda layout: layout.share, default=None)
        if slowest is None or slowest.share > _WORTH_A_NOTE:
            return None
        how = "one image at a time" if slowest.alone else f"in {len(slowest.places)} of {slowest.size} rows"
        return (
            "answers or gradients of this network depend on an image's place in a batch, or on the images beside it, "
            f"so it is queried {how}: results are exact, and take longer."
        )

    def fit(self, rows: int, slots: int, kind: str) -> int:
        """The smallest good size for `rows` rows in flight out of `slots`: 2, 3, 4, 6, 8, 12, 16, ... or all slots.

        Few sizes, because each costs a comparison on a CPU and a tuning of kernels on an accelerator.
        """
        if self.compact:
            return rows
        least = _LEAST if self.exact else 2
        sizes = {base << shift for shift in range(20) for base in (2, 3)} | {slots}
        return min(size for size in sizes if size >= max(rows, least) and self._usable(size, kind))

    def halved(self, rows: int, kind: str) -> int:
        """As many rows as may be in flight after an out-of-memory with `rows`; the attacks that follow begin with them.

        Raises:
            UserError: a single row does not fit into memory.
        """
        self.fit_into_memory[kind] = half_of(rows)
        return self.fit_into_memory[kind]

    def numbers(self, rows: int, device: torch.device) -> Tensor:
        """`[rows]` the numbers of all rows, always the same tensor."""
        everything = self._numbers.get((rows, device))
        if everything is None:
            everything = self._numbers[rows, device] = torch.arange(rows, device=device)
        return everything

    def answer(
        self,
        ask: Callable[[Tensor], R],
        rows: int,
        kind: str,
        device: torch.device,
        probe: Probe | None = None,
    ) -> R:
        """`ask` for all rows, in one call if the size is proven, else in tiles.

        Args:
            ask: takes row numbers `[n]`, returns a struct of `n` rows; all rows are asked by the tensor of `numbers`.
            rows: how many rows there are.
            kind: of query; each kind has proofs of its own.
            device: of the rows.
            probe: queries in the same way at made-up images; without it the tile is trusted.
        """
        everything = self.numbers(rows, device)
        if not self.exact or (kind, rows) in self.proven:
            return ask(everything)
        layout = self.layout(kind, probe)
        if layout.whole and layout.size == rows:  # a tile
            self.proven.add((kind, rows))
            return ask(everything)
        in_tiles = asked(ask, everything, layout)
        if layout.whole and not layout.alone and layout.repeats and self._pays(kind, rows):
            same = same_bits(ask(everything), in_tiles)
            same = same and (probe is None or agrees(probe, layout, rows, watched=self.watched, light=self.light))
            (self.proven if same else self.refused).add((kind, rows))
        return in_tiles

    def layout(self, kind: str, probe: Probe | None, size: int | None = None) -> BatchLayout:
        """How rows are laid out in tiles, or in batches of another `size`; found out once for each kind of query."""
        size = self.tile if size is None else size
        if probe is None or not self.exact:
            return BatchLayout.full(size)
        if kind not in self.layouts:
            self.layouts[kind] = best_layout(probe, size, watched=self.watched, light=self.light)
        return self.layouts[kind]

    def _pays(self, kind: str, rows: int) -> bool:
        """Whether a size is worth a comparison by now."""
        if (kind, rows) in self.refused:
            return False
        self.filling[kind, rows] = self.filling.get((kind, rows), 0) + self.tile - rows
        return rows > self.tile or self.filling[kind, rows] >= _COMPARISON * rows

    def _usable(self, size: int, kind: str) -> bool:
        return (kind, size) not in self.refused or size % self.tile == 0


def made_up(numbers: Tensor, like: Tensor) -> Tensor:
    """`[n, *S]` images in [0, 1] of the type of `like` `[N, *S]`, each fixed by its number: noise, faint noise, and
    noise on few pixels.
    """
    shape, on_cpu = like.shape[1:], numbers.device.type == "cpu"
    if on_cpu and (count := 1 << int(numbers.max()).bit_length()) * shape.numel() <= _KEPT:
        return _first_made_up(count, shape, like.dtype).index_select(0, numbers).to(like.device)
    return _made_up(numbers, shape, like.dtype).to(like.device)


@lru_cache(maxsize=2)  # comparing orders asks for the same images again and again
def _first_made_up(count: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return _made_up(torch.arange(count, device="cpu"), shape, dtype)


def _made_up(numbers: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    keys = noise.keys(0, numbers)
    first, second = noise.uniform(keys, 0, (2, *shape)).unbind(1)
    if dtype is torch.float64:
        # Multiplied with weights of 24 bits, images of 24 bits are not rounded, whatever the order of the sum.
        first = first.double() * (1 - 2**-24) + noise.uniform(keys, 1, tuple(shape)).double() * 2**-24
    kind = along(numbers % 3, first)
    faint, sparse = 0.4 + 0.2 * first, torch.where(second < 0.2, first, 0)
    return torch.where(kind == 0, first, torch.where(kind == 1, faint, sparse)).to(dtype)


def share_comparisons(network: nn.Module, other: nn.Module) -> None:
    """Use for `network` what is and will be compared for `other`, which is built the same way by the same code."""
    _COMPARED[network] = _COMPARED.setdefault(other, {})


def _build(network: nn.Module) -> tuple[object, ...]:
    """What a network is made of, except for the values of its weights: nothing else chooses kernels."""
    weights = [(weight.shape, weight.stride(), weight.dtype) for weight in (*network.parameters(), *network.buffers())]
    plain = [str(value) for module in network.modules() for key, value in sorted(vars(module).items())
             if isinstance(value, (int, float, str, tuple)) and key != "training"]  # fmt: skip
    return str(network), tuple(weights), tuple(plain)
