"""Docstrings and signatures as they are written here, for autodoc."""

import re
from typing import Any

from sphinx.application import Sphinx

_PLAIN = ("attribute", "data", "property")


def setup(app: Sphinx) -> dict[str, Any]:
    """Adapt docstrings before and after napoleon (priority 500) reads their sections."""
    sentences: dict[str, list[str]] = {}

    def before(app: Sphinx, what: str, name: str, subject: object, options: object, lines: list[str]) -> None:
        if what in _PLAIN:
            sentences[name] = list(lines)
        _mark_code(lines)

    def after(app: Sphinx, what: str, name: str, subject: object, options: object, lines: list[str]) -> None:
        # Napoleon takes the words before a colon for the type of an attribute.
        if what in _PLAIN:
            lines[:] = sentences.pop(name, lines)

    app.connect("autodoc-process-docstring", before, priority=400)
    app.connect("autodoc-process-docstring", after, priority=600)
    app.connect("autodoc-process-signature", _parseable)
    return {"parallel_read_safe": True}


def _mark_code(lines: list[str]) -> None:
    """Say to docutils that an indented block after an empty line is code."""
    for row in range(len(lines) - 1, 1, -1):
        before = next((line for line in reversed(lines[:row]) if line.strip()), "")
        if lines[row].startswith("    ") and not lines[row - 1].strip() and not before.startswith(" "):
            lines[row:row] = ["::", ""]


def _parseable(app: Sphinx, what: str, name: str, subject: object, options: object, *texts: str | None) -> Any:
    """The signature of a dataclass without what is no Python: Sphinx shows that letter by letter."""
    signature, result = texts
    if signature is None:
        return None
    signature = re.sub(r"dataclasses\.InitVar\[(.*?)\](?= = |, \w+:|\))", r"\1", signature)
    return signature.replace("<factory>", "..."), result
