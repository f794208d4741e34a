"""A hostile file that a test can write where it likes."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch


class HostileFile(NamedTuple):
    """What it is called, and how it is written there."""

    name: str
    write: Callable[[Path], object]

    def make(self, folder: Path) -> Path:
        path = folder / self.name
        self.write(path)
        return path


class RunsCode:
    """Its pickle leaves the file CODE_RAN in the current folder."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("open('CODE_RAN', 'w').close()",)


def raw(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def saved(content: object) -> Callable[[Path], object]:
    return lambda path: torch.save(content, path)


def small_state() -> dict[str, torch.Tensor]:
    """The weights of `nn.Sequential(nn.Flatten(), nn.Linear(64, 10))`."""
    return {"1.weight": torch.zeros(10, 64), "1.bias": torch.zeros(10)}
