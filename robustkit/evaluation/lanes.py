"""What goes between the first process of a run and a worker: lanes there, rows, notes and requests for more back."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from robustkit.errors import UserError
from robustkit.evidence.rows import AnswerRecord, Row

# Entries of a manifest that the part of a run which is about one model adds to: sentences, and values by name.
NOTED_BY_NAME: Final[tuple[str, ...]] = ("randomized", "bisected", "gradient_stops")
NOTED: Final = ("warnings", *NOTED_BY_NAME)
HOST_LOST: Final = "host lost"  # how a worker ends whose host is gone, or was never there


@dataclass(frozen=True)
class Lane:
    """Some images of one model, for one attack."""

    model: int  # its number among the models of the run
    attack: int | None  # its number in the plan; None for the clean and the corrupted images
    images: tuple[int, ...]
    rows: tuple[Row, ...] = ()  # what is known about them already
    noted: Mapping[str, Any] | None = None  # entries of the manifest
    keep_adversarial: bool = False  # as the run folder was begun
    alone: bool = False  # whether its worker gets no other images meanwhile: these were with one that ended
    deaths: int = 0  # of workers that had this image alone

    def continues(self, other: "Lane") -> bool:
        """Whether its images may be attacked in a batch with those of another lane."""
        same = (self.model, self.attack) == (other.model, other.attack)
        return same and self.attack is not None and not (self.alone or other.alone)


@dataclass(frozen=True)
class Opening:
    """How a worker tries the models before it gets a lane."""

    avoided: frozenset[int] = frozenset()  # images that ended workers
    singly: bool = False  # one image after the other, each of which is announced: a worker ended there
    suspects: frozenset[int] = frozenset()  # images that are tried after all others


@dataclass(frozen=True)
class Trying:
    """A model is about to get one of the first images alone."""

    model: str  # its name
    image: int | None  # None: it got all of them


@dataclass(frozen=True)
class Ready:
    """A worker has loaded models and data, and has tried the models on the first images of the run."""

    fingerprints: tuple[str, ...]  # of the models, the surrogates and the first images
    answers: tuple[AnswerRecord, ...]  # theirs


@dataclass(frozen=True)
class NewRows:
    """Rows that belong together, in one transaction."""

    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Noted:
    """Entries of a manifest."""

    entries: Mapping[str, Any]


@dataclass(frozen=True)
class More:
    """The batch of a worker will soon have room for more images of the lane that it was handed last."""


@dataclass(frozen=True)
class LaneDone:
    """All images of a lane are finished."""

    images: tuple[int, ...]
    seconds: Mapping[str, float]  # by stage


@dataclass(frozen=True)
class LaneFailed:
    """The work cannot go on, for a reason that is not the worker's own end."""

    text: str
    mendable: bool  # by the user


Message = Trying | Ready | NewRows | Noted | More | LaneDone | LaneFailed


GUARD = 'in a script, put the call of evaluate under if __name__ == "__main__":, and classes of models above it'


@contextmanager
def sending(option: str) -> Iterator[None]:
    """Turn whatever the parts of a model or of data raise when they are pickled into a UserError.

    Args:
        option: what to leave out, so that nothing is sent to other processes.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, RuntimeError) and "bootstrapping" in str(error):  # multiprocessing's, in a worker
            raise UserError(f"A worker process ran the whole script: {GUARD}.") from None
        raise UserError(
            f"The evaluation cannot be sent to worker processes ({type(error).__name__}: {error}); name models and "
            f"data by strings, or leave out {option}."
        ) from None
