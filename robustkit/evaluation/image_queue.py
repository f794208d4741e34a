"""Images that wait for an attack, in order."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from robustkit.evaluation.image_marks import Numbers


class ImageQueue:
    """A queue of image numbers that keeps arrays as they come: those that wait for many attacks are in memory once."""

    def __init__(self) -> None:
        self._parts: deque[Numbers] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, images: Numbers) -> None:
        """Append images; the array must not change afterwards."""
        if len(images):
            self._parts.append(images)
            self._count += len(images)

    def take(self, most: int) -> tuple[int, ...]:
        """Remove at most `most` images from the front."""
        taken: list[int] = []
        while self._parts and len(taken) < most:
            part = self._parts.popleft()
            missing = most - len(taken)
            taken += part[:missing].tolist()
            if len(part) > missing:
                self._parts.appendleft(part[missing:])
        self._count -= len(taken)
        return tuple(taken)

    def remove(self, image: int) -> None:
        """Remove an image if it waits."""
        self._parts = deque(part[part != image] for part in self._parts)
        self._count = sum(map(len, self._parts))


def image_numbers(images: Sequence[int] | Numbers) -> Numbers:
    """Image numbers as an array of the smallest type that holds them, which many queues may keep."""
    numbers = np.asarray(images, np.int64)
    return numbers.astype(np.int32) if numbers.max(initial=0) < 1 << 31 else numbers
