"""The paper of an attack, as the docstring of its file cites it.

It is cited as `Authors Year, arXiv:NUMBER`, or as `Authors Year (VENUE` where there is no preprint.
"""

import inspect
import re
from typing import NamedTuple

_CAPITALISED = r"[^\W\d_a-z][\w'-]*"
_PLACE = r"(?:, (arXiv:\d{4}\.\d{4,5})| \(([A-Z][A-Za-z]+))"
_CITED = re.compile(rf"({_CAPITALISED}(?:,? (?:{_CAPITALISED}|&|et|al\.|van|den))*) (\d{{4}}){_PLACE}")


class Paper(NamedTuple):
    """Whose idea an attack is."""

    authors: str
    year: str
    place: str  # "arXiv:NUMBER" or the name of a conference

    @property
    def short(self) -> str:
        """With "et al." in place of all authors but the first, if there are three or more."""
        first, comma, _ = self.authors.partition(",")
        return f"{first}{' et al.' if comma else ''} {self.year}, {self.place}"


def paper_of(kind: type) -> Paper | None:
    """The first paper that the docstring of the attack's module cites; None if it cites none or calls the idea ours."""
    _, _, rest = (inspect.getdoc(inspect.getmodule(kind)) or "").partition("\n\n")
    cited = None if re.match(r"Ours[.:]", rest) else _CITED.search(rest.replace("\n", " "))
    return Paper(cited[1], cited[2], cited[3] or cited[4]) if cited else None
