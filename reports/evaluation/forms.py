"""The forms in which runs are written: by the ending of a file's name, or by the form's own name."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from robustkit.errors import UserError, unknown
from robustkit.evidence.run import Run
from robustkit.host.files import write_text

from .html import page
from .json_form import json_text
from .model_card import model_card
from .plain_tables import latex, markdown

FORMS: Final[dict[str, Callable[[Sequence[Run]], str]]] = {
    "html": page, "markdown": markdown, "latex": latex, "json": json_text, "model-card": model_card,
}  # fmt: skip
_USUAL_NAMES: Final = {
    "markdown": "report.md", "latex": "report.tex", "json": "report.json", "model-card": "model-card.md",
}  # fmt: skip
_ENDINGS: Final = {".html": "html", ".htm": "html", ".md": "markdown", ".tex": "latex", ".json": "json"}


def write_form(runs: Sequence[Run], path: Path, form: str | None = None) -> None:
    """Write a report of some runs to a file.

    Args:
        runs: at least one.
        path: .html, .md, .tex and .json say the form.
        form: one of `FORMS`; None goes by the name.

    Raises:
        UserError: there is no such form, or the file cannot be written.
    """
    name = form or _form_of(path)
    if name not in FORMS:
        raise unknown("form of a report", name, FORMS)
    write_text(path, FORMS[name](runs))


def usual_name(form: str | None) -> str:
    """The name of a file in one of `FORMS`, None for html: no form replaces the page of a run."""
    return _USUAL_NAMES.get(form or "html", "report.html")


def _form_of(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise UserError(
            f"{path} does not say what a report is written as; end its name in {', '.join(_ENDINGS)}, or give --format."
        )
    return _ENDINGS[ending]
