"""More rows in flight on a GPU, until its memory is full: `--batch-size max`."""

from typing import Final, Protocol

import torch

from robustkit.classifier.batch_sizes import BatchSizes

_FULL: Final = 0.9  # share of the memory that twice the peak may take
_MOST: Final = 1 << 14  # rows: what the host does for each of them takes its time


class MemoryMeter(Protocol):
    """The memory of a device, in bytes."""

    def peak(self) -> int:
        """The most that was in use since the last call."""

    def limit(self) -> int:
        """The most that this process can have."""


class GpuMemory:
    """The memory of a GPU; asking for it does not wait for the GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        torch.cuda.reset_peak_memory_stats(device)

    def peak(self) -> int:
        """The most that was in use since the last call."""
        most = torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return most

    def limit(self) -> int:
        """What is free on the GPU, and what torch holds of it already."""
        free, _ = torch.cuda.mem_get_info(self.device)
        return free + torch.cuda.memory_reserved(self.device)


class Growth:
    """Doubles the rows in flight while twice the peak of a full batch fits into memory.

    Weights are counted twice as well, so that this errs on the side of fewer rows. After an out-of-memory there is no
    more growth.

    Args:
        sizes: of the model, which remember the rows for the attacks that follow.
        meter: of its device.
    """

    def __init__(self, sizes: BatchSizes, meter: MemoryMeter) -> None:
        self.sizes, self.meter = sizes, meter
        self._over = False

    def first(self, rows: int, kind: str) -> int:
        """With how many rows an attack begins."""
        return max(rows, self.sizes.grown.get(kind, rows))

    def after(self, rows: int, kind: str) -> int:
        """How many rows may be in flight after a batch that was full with `rows`, while more trials wait."""
        if self._over or kind in self.sizes.fit_into_memory:
            return rows
        if 2 * rows > _MOST or 2 * self.meter.peak() > _FULL * self.meter.limit():
            self._over = True
            return rows
        self.sizes.grown[kind] = 2 * rows
        return 2 * rows


def growth_on(device: torch.device, sizes: BatchSizes) -> Growth | None:
    """The growth on a GPU; None on a CPU, where a batch of usual size keeps all cores busy."""
    return Growth(sizes, GpuMemory(device)) if device.type == "cuda" else None
