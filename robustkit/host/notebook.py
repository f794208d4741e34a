"""How results show themselves in Python: one line in a console, a small table in a notebook."""

import html
from abc import ABC, abstractmethod

from robustkit.host.text import printable


class Summarised(ABC):
    """An object that says in a few facts what it is, however much it holds."""

    @abstractmethod
    def summary(self) -> dict[str, str]:
        """The facts a person asks for first: names and values as texts."""

    def __repr__(self) -> str:
        """One line."""
        facts = ", ".join(f"{name} {value}" for name, value in self.summary().items())
        return printable(f"<{type(self).__name__}: {facts}>")

    def _repr_html_(self) -> str:
        """A table with a row for each fact, in a notebook."""
        left = 'style="text-align:left"'
        rows = "".join(
            f"<tr><th {left}>{_escaped(name)}</th><td {left}>{_escaped(value)}</td></tr>"
            for name, value in self.summary().items()
        )
        return f"<table><caption>{type(self).__name__}</caption><tbody>{rows}</tbody></table>"


def share(value: float) -> str:
    """A share as "41.2 %"; "unknown" for NaN."""
    return "unknown" if value != value else f"{100 * value:.1f} %"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
