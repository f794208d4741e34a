"""Classes by name or number, as users write them and as results show them."""

from collections.abc import Sequence
from dataclasses import dataclass

from robustkit.errors import UserError, unknown
from robustkit.limits import shortened

_DIGITS = 9  # of a class number


@dataclass(frozen=True)
class ClassNames:
    """The classes of a model. Names may be unknown; numbers always work."""

    names: tuple[str, ...]
    count: int

    def text(self, number: int) -> str:
        """How a class is shown; -1 is the answer of a model that abstains."""
        if number < 0:
            return "abstains"
        return self.names[number] if number < len(self.names) else str(number)

    def number(self, text: str) -> int:
        """The class that a name or a number stands for; case, spaces and underscores make no difference.

        Raises:
            UserError: there is no such class, or several have this name.
        """
        same = [number for number, name in enumerate(self.names[: self.count]) if _plain(name) == _plain(text)]
        if len(same) > 1:
            listed = " and ".join(map(str, same))
            raise UserError(f"The classes {listed} are both called {shortened(text)!r}; give the number of one.")
        if same:
            return same[0]
        word = text.strip()
        if word.isdecimal() and word.isascii():
            if len(word) <= _DIGITS and int(word) < self.count:
                return int(word)
            raise UserError(f"There is no class {shortened(word)}; the model has {self.count}, numbered from 0.")
        if not self.names:
            raise UserError(
                f"The names of the classes are not known, so {shortened(word)!r} is not one of them; give a "
                f"number from 0 to {self.count - 1}, or --dataset NAME for data whose names are known."
            )
        raise self._unknown(word)

    def of_folders(self, folders: Sequence[str]) -> list[int]:
        """The classes of a data set's folders, which are sorted: by their names, else by their positions.

        Raises:
            UserError: some folder is no class, and there are not as many folders as classes.
        """
        try:
            return [self.number(name) for name in folders]
        except UserError as error:
            if len(folders) == self.count:  # as evaluations number them
                return list(range(self.count))
            raise UserError(
                f"The sub-folder {shortened(self._first_unknown(folders))!r} names no class of the model, and "
                f"there are {len(folders)} sub-folders but {self.count} classes; name them after classes (or their "
                "numbers), or give --label."
            ) from error

    def _first_unknown(self, folders: Sequence[str]) -> str:
        for name in folders:
            try:
                self.number(name)
            except UserError:
                return name
        return folders[0]

    def _unknown(self, text: str) -> UserError:
        # "cat" is spelt like no class of ImageNet, but is a word of several.
        holding = [name for name in self.names if _plain(text) in _plain(name)][:3]
        if holding:
            return UserError(f"There is no class called {shortened(text)!r}; did you mean {' or '.join(holding)}?")
        return unknown("class", shortened(text), self.names)


def _plain(text: str) -> str:
    return " ".join(text.replace("_", " ").casefold().split())
