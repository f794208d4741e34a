"""Reading the next images from the disk while a GPU works on those before."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(read: Callable[[Sequence[int]], T], parts: Iterable[Sequence[int]]) -> Iterator[tuple[Sequence[int], T]]:
    """Each part with what `read` returns for it; the next one is read in a thread meanwhile.

    An error of `read` is raised in the turn of its part. One part is read at a time, in order.
    """
    with ThreadPoolExecutor(1) as reader:
        begun: tuple[Sequence[int], Future[T]] | None = None
        for part in parts:
            following = part, reader.submit(read, part)
            if begun is not None:
                yield begun[0], begun[1].result()
            begun = following
        if begun is not None:
            yield begun[0], begun[1].result()
