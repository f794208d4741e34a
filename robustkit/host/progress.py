"""Who wants to see a run's progress: the command line's bars, or nobody."""

from typing import Protocol


class ProgressWatch(Protocol):
    """Who wants to see a run's progress."""

    def stage(self, text: str, total: int, done: int) -> None:
        """A stage of `total` images begins, of which `done` were finished before."""

    def advance(self, images: int, robust: float) -> None:
        """So many more images are finished; robust accuracy so far."""

    def say(self, text: str) -> None:
        """One sentence that should be read."""

    def training(self, text: str, share: float) -> None:
        """A training is this far, as a share of 1."""


class Silent:
    """Nobody watches."""

    def stage(self, text: str, total: int, done: int) -> None: ...
    def advance(self, images: int, robust: float) -> None: ...
    def say(self, text: str) -> None: ...
    def training(self, text: str, share: float) -> None: ...
