"""The places of a batch in which a network gives an image the same bits.

The kernels of a CPU may treat the rows of a batch differently: by the alignment of a row in memory (`Linear` on 50
features, on processors without AVX2), by the thread that computes it, and by what is left over at the end of a tensor.
Measured, not assumed: some images are queried in several places, beside other images. Where all places agree, the whole
batch is used; else only the places that agree, the others being filled; else each image alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.classifier.scalar_tails import ScalarTails
from robustkit.errors import UserError
from robustkit.primitives.rows import Rows, padded

R = TypeVar("R", bound=Rows)

# The answers to made-up images of these numbers `[n]`, in one batch of n rows in this order.
Probe = Callable[[Tensor], Rows]

_LEAST = 4  # a batch of which less than one row in so many can be used takes more time than each image alone
_TRIED_ALONE = 3  # images asked twice
# Orders of a batch. A tail of a few values shows in one order of ten, and rows that a small GRU rounds otherwise in 6 %
# of all images.
_FEW, _MANY = 1, 8


@dataclass(frozen=True)
class BatchLayout:
    """How the rows of a query are laid out in batches.

    Args:
        size: rows of a batch.
        places: `[n]` int64, increasing: those rows of a batch that hold a query; the others are filled.
        repeats: whether the same batch gets the same bits again.
        alone: no larger batch would do.
    """

    size: int
    places: Tensor
    repeats: bool = True
    alone: bool = False

    @classmethod
    def full(cls, size: int, *, repeats: bool = True, alone: bool = False) -> Self:
        """All rows of a batch of `size`."""
        return cls(size, torch.arange(size, device="cpu"), repeats, alone)

    @property
    def whole(self) -> bool:
        """Whether all rows of a batch are used."""
        return len(self.places) == self.size

    @property
    def share(self) -> float:
        """Of the rows of a batch, how many hold a query; an image alone, for want of a batch, counts as none."""
        return 0 if self.alone else len(self.places) / self.size

    def batches(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Row numbers `[n]` in batches: the numbers in each of its rows, and which of them are not filling."""
        places = self.places.to(rows.device)
        for part in torch.split(rows, len(places)):
            if self.whole:
                yield padded(part, self.size), places[: len(part)]
            else:
                yield part[:1].expand(self.size).index_copy(0, places[: len(part)], part), places[: len(part)]


def best_layout(probe: Probe, size: int, *, watched: bool, light: bool = False) -> BatchLayout:
    """The layout in which an image gets the same bits in every place and beside every other image.

    Args:
        probe: queries the network.
        size: of the batches wanted.
        watched: whether the network's operations can be watched one by one.
        light: queries cost next to nothing, so many orders are compared.
    """
    images = torch.arange(size, device="cpu")
    seen = _watched(probe, images) if watched else None
    answers, tails = (probe(images), None) if seen is None else seen
    whole = BatchLayout.full(size)
    if not _differs(tails) and _orders_agree(probe, answers, tails, light) and _others_agree(probe, answers, whole):
        return whole
    traces = [] if tails is None else tails.traces
    places = _largest_class(probe, size, traces) if tails is None or not tails.unclear else images[:0]
    # All of them agree about a few images, and something above was seen that they do not agree about.
    some = len(places) < size <= len(places) * _LEAST
    if some and _hold(probe, BatchLayout(size, places), _MANY if light else 2):
        return BatchLayout(size, places)
    repeats = all(same_bits(probe(image), probe(image)) for image in torch.split(images[:_TRIED_ALONE], 1))
    return BatchLayout.full(1, alone=True) if repeats else BatchLayout.full(size, repeats=False)


def agrees(probe: Probe, layout: BatchLayout, size: int, *, watched: bool, light: bool = False) -> bool:
    """Whether a batch of another size, all of whose rows are used, gives the bits of a whole layout."""
    images = torch.arange(size, device="cpu")
    seen = _watched(probe, images) if watched else None
    tails = None if seen is None else seen.tails
    return not _differs(tails) and _orders_agree(probe, asked(probe, images, layout), tails, light)


def asked(ask: Callable[[Tensor], R], rows: Tensor, layout: BatchLayout) -> R:
    """The answers to row numbers `[n]`, in batches of the layout."""
    answers = []
    for batch, places in layout.batches(rows):
        answer = ask(batch)
        answers.append(answer if len(places) == len(answer) else answer.take(places))
    return Rows.cat(answers)


def orders(size: int, count: int) -> Iterator[Tensor]:
    """Orders of a batch that bring every image beside others.

    Each moves the images in one circle through all places, so that no division of the places into classes is respected.
    """
    generator = torch.Generator().manual_seed(size)
    for _ in range(count):
        circle = torch.randperm(size, generator=generator, device="cpu")
        yield torch.empty_like(circle).index_copy(0, circle, circle.roll(1))


class _Watched(NamedTuple):
    answers: Rows
    tails: ScalarTails  # what the operations say about the rows


def _watched(probe: Probe, images: Tensor) -> _Watched | None:
    """The answers of one batch whose operations are watched; None where they cannot be."""
    tails = ScalarTails(len(images))
    try:
        with tails:
            return _Watched(probe(images), tails)
    except UserError:
        raise
    except Exception:
        # A model may not run under a dispatch mode, such as one that compiles a part of itself.
        return None


def _differs(tails: ScalarTails | None) -> bool:
    return tails is not None and (bool(tails.traces) or tails.unclear)


def _orders_agree(probe: Probe, answers: Rows, tails: ScalarTails | None, light: bool) -> bool:
    """Whether images get the same answers in other orders; in many, if that is cheap or operations were not watched."""
    count = _FEW if tails is not None and not light else _MANY
    return all(same_bits(answers.take(order), probe(order)) for order in orders(len(answers), count))


def _others_agree(probe: Probe, answers: Rows, layout: BatchLayout) -> bool:
    """Whether images get the same answers where every second one is another image: no order shows a sum over all."""
    images = torch.arange(len(answers), device="cpu")
    kept, others = images[::2], torch.where(images % 2 == 0, images, images + len(answers))
    return same_bits(answers.take(kept), asked(probe, others, layout).take(kept))


def same_bits(one: Rows, other: Rows) -> bool:
    """Whether two structs hold the same values in all their tensors."""
    return all(torch.equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))  # type: ignore[arg-type]


def _largest_class(probe: Probe, size: int, traces: list[Tensor]) -> Tensor:
    """The places that agree about three images and are computed alike: of several such sets the largest."""
    classes: dict[tuple[bytes, ...], list[int]] = {}
    kinds = [_fingerprints(probe(torch.full((size,), image, device="cpu"))) for image in range(_TRIED_ALONE)]
    kinds += [[_bytes(row) for row in trace] for trace in traces]
    for place, key in enumerate(zip(*kinds, strict=True)):
        classes.setdefault(key, []).append(place)
    return torch.tensor(max(classes.values(), key=len), device="cpu")


def _fingerprints(answer: Rows) -> list[bytes]:
    columns = [getattr(answer, each.name).detach() for each in fields(answer)]  # type: ignore[arg-type]
    return [b"".join(_bytes(column[row]) for column in columns) for row in range(len(answer))]


def _bytes(values: Tensor) -> bytes:
    return values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _hold(probe: Probe, layout: BatchLayout, tried: int) -> bool:
    """Whether images get the same bits in all places of a layout, the rest of the batch being other images."""
    count = len(layout.places)
    images = torch.arange(count, device="cpu")
    expected = asked(probe, images, layout)
    orders_agree = all(same_bits(expected.take(order), asked(probe, order, layout)) for order in orders(count, tried))
    return orders_agree and _others_agree(probe, expected, layout)
