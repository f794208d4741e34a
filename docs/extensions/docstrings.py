"""Docstrings as they are written here: an indented block after an empty line is code."""

from typing import Any

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Mark such blocks before napoleon reads the sections."""
    app.connect("autodoc-process-docstring", _mark_code, priority=400)
    return {"parallel_read_safe": True}


def _mark_code(app: Sphinx, what: str, name: str, subject: object, options: object, lines: list[str]) -> None:
    for row in range(len(lines) - 1, 1, -1):
        before = next((line for line in reversed(lines[:row]) if line.strip()), "")
        if lines[row].startswith("    ") and not lines[row - 1].strip() and not before.startswith(" "):
            lines[row:row] = ["::", ""]
