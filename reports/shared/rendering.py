"""Pages from templates: names of models, layers and classes are not trusted, so every value is escaped.

Each page is one file that loads nothing. A policy in it lets the browser run our own script alone.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

REPORTS = Path(__file__).parents[1]
SCRIPTS = ("tables.js", "legends.js", "exports.js", "page.js")


def render(template: str, **values: Any) -> str:
    """The text of the template `FOLDER/NAME` with these values; a value that is missing is an error."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> "Environment":
    """It keeps compiled templates: compiling one takes longer than rendering it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(REPORTS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Sorted keys would change the order of the columns.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "ensure_ascii": False}
    environment.globals.update(script=script(), policy=policy())
    return environment


@cache
def script() -> str:
    """The script of every page: without it nothing is missing but sorting, filters and files to save."""
    code = "".join((REPORTS / "shared" / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{code}}})();\n'


def policy() -> str:
    """What a browser may do in a page: run this script and no other, load nothing, send nothing."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"


def styles(*names: str) -> str:
    """The style sheets `FOLDER/NAME` of the reports, one after the other."""
    return "".join((REPORTS / name).read_text(encoding="utf-8") for name in names)
