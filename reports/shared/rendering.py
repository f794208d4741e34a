"""Pages out of templates: names come from strangers, so everything is escaped, and nothing may be left undefined."""

from pathlib import Path
from typing import Any

REPORTS = Path(__file__).parents[1]


def rendered(template: str, **values: Any) -> str:
    """The template `FOLDER/NAME` of the reports, filled."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(REPORTS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Sorted keys would put the columns of a record out of their order.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "ensure_ascii": False}
    return environment.get_template(template).render(**values)


def styles(*names: str) -> str:
    """The style sheets `FOLDER/NAME` of the reports, one after the other."""
    return "".join((REPORTS / name).read_text(encoding="utf-8") for name in names)
