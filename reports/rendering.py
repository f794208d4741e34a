"""Pages out of templates: names come from strangers, so everything is escaped, and nothing may be left undefined."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def rendered(template: str, **values: Any) -> str:
    """The template of this folder, filled."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Sorted keys would put the columns of a record out of their order.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "ensure_ascii": False}
    return environment.get_template(template).render(**values)


def styles(*names: str) -> str:
    """The style sheets of these names, one after the other."""
    return "".join((HERE / name).read_text(encoding="utf-8") for name in names)
