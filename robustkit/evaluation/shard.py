"""Which images one of several processes works on: shard 2/8 takes every eighth image of the run, from the second on.

The images of a run stand in a fixed pseudo-random order, so shards are alike, and the shards of a longer run begin with
those of a shorter one. Shards share no evidence file; `robustkit merge` joins their run folders.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from robustkit.errors import UserError
from robustkit.limits import shortened

AUTO: Final = "auto"
_MOST = 1_000_000  # shards
_TEXT = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", re.ASCII)
_ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT")
_RANKS = ("RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a run's images; `index` counts from 1."""

    index: int
    count: int

    @property
    def text(self) -> str:
        """Such as "2/8"."""
        return f"{self.index}/{self.count}"

    @property
    def folder(self) -> str:
        """Name of its run folder, such as "shard-2-of-8"."""
        return f"shard-{self.index}-of-{self.count}"

    def share(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Its images, of those of the run."""
        return tuple(ids[self.index - 1 :: self.count])


def shard_of(text: str, environment: Mapping[str, str]) -> Shard:
    """The shard that a text such as "2/8" names, or the environment if the text is "auto".

    Raises:
        UserError: it names none.
    """
    if text.strip().lower() == AUTO:
        return _shard_of_environment(environment)
    found = _TEXT.fullmatch(text)
    if found is None:
        raise UserError(f"{shortened(text)!r} is not a shard; write for example 2/8 for the second of eight, or auto.")
    return _checked(Shard(int(found[1]), int(found[2])))


def ignored_shard(environment: Mapping[str, str]) -> str | None:
    """A sentence about variables that say that this is one of several processes, where no shard was asked for."""
    for _, name in (_ARRAY, _RANKS):
        count = environment.get(name, "")
        if count.isdecimal() and int(count) > 1:
            return (
                f"{name} is {count}, and each of these processes evaluates all images; with --shard auto each "
                "takes its share."
            )
    return None


def _shard_of_environment(environment: Mapping[str, str]) -> Shard:
    present = [names for names in (_ARRAY, _RANKS) if all(name in environment for name in names)]
    if not present:
        raise UserError(
            f"--shard auto needs {' and '.join(_ARRAY)} (a Slurm array) or {' and '.join(_RANKS)} (torchrun), and they "
            "are not set; give --shard with two numbers, as in 2/8."
        )
    several = [names for names in present if environment[names[1]] != "1"]
    if len(several) > 1:
        raise UserError(
            "This is a process of torchrun in a task of a Slurm array, so --shard auto could mean either; give --shard "
            "with two numbers, as in 2/8."
        )
    chosen = (several or present)[-1]
    if chosen is _ARRAY:
        return _shard_of_array(environment)
    rank, count = (_number(environment, name) for name in _RANKS)
    return _checked(Shard(rank + 1, count))


def _shard_of_array(environment: Mapping[str, str]) -> Shard:
    """The shard of a task of a Slurm array, whose numbers begin at 0 or 1."""
    number, count = (_number(environment, name) for name in _ARRAY)
    first, last = (_number(environment, f"SLURM_ARRAY_TASK_{name}") for name in ("MIN", "MAX"))
    # Failed tasks that are submitted again are an array of their own, and would take images of other tasks.
    if count < 2 or first > 1 or last - first + 1 != count:
        raise UserError(
            f"The Slurm array has {count} of the tasks {first} to {last}, which does not say how many shards there "
            'are; give the number, as in --shard "$SLURM_ARRAY_TASK_ID/8".'
        )
    return _checked(Shard(number - first + 1, count))


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise UserError(
            f"{name} is {shortened(text)!r}, which is not a number; give --shard with two numbers, as in 2/8."
        )
    return int(text)


def _checked(shard: Shard) -> Shard:
    if not 1 <= shard.index <= shard.count <= _MOST:
        raise UserError(
            f"There is no shard {shard.text}: shards are counted from 1, so the last of {max(shard.count, 1)} is "
            f"{max(shard.count, 1)}/{max(shard.count, 1)}, and there are at most {_MOST:,}."
        )
    return shard
