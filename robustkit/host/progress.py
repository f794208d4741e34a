"""Callbacks for the progress of a run."""

from typing import Protocol


class ProgressWatch(Protocol):
    """Gets the progress of a run, for example to draw bars."""

    def stage(self, text: str, total: int, done: int) -> None:
        """A stage of `total` images begins; `done` of them were finished in an earlier run."""

    def advance(self, images: int, robust: float) -> None:
        """`images` more are finished; `robust` is the robust accuracy so far."""

    def say(self, text: str) -> None:
        """A message for the user."""

    def training(self, text: str, share: float) -> None:
        """A training has done this share of its steps, from 0 to 1."""


class Silent:
    """Ignores all progress."""

    def stage(self, text: str, total: int, done: int) -> None: ...
    def advance(self, images: int, robust: float) -> None: ...
    def say(self, text: str) -> None: ...
    def training(self, text: str, share: float) -> None: ...
