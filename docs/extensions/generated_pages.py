"""Pages that are made when the site is built: attacks from the registry, modules, and files of the repository.

They lie in docs/generated, which git ignores.
"""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import attack_table
from repository_links import PAGES, on_site
from sphinx.application import Sphinx

import robustkit
from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack

ROOT = Path(__file__).parents[2]
_FURTHER = "\n```{toctree}\n:hidden:\n\nbenchmarks-default\nbenchmarks-designs\nbenchmarks-attacks\n```\n"
_REFERENCE = "```{{eval-rst}}\n{}\n```\n"


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them, and adapt the links of all others as they are read."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _adapt)
    return {"parallel_read_safe": True}


def _write(app: Sphinx) -> None:
    pages = {f"attacks-{family}.md": _family(family) for family in attack_table.FAMILIES}
    pages["statistics.md"] = _statistics()
    pages["robustkit.md"] = _public()
    for file, page in PAGES.items():
        if page.startswith("docs/generated/"):
            pages[Path(page).name] = on_site((ROOT / file).read_text("utf-8"), file)
    pages["benchmarks.md"] += _FURTHER
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        file = folder / name
        if not file.is_file() or file.read_text("utf-8") != text:  # what did not change is not built again
            file.write_text(text, "utf-8")


def _adapt(app: Sphinx, name: str, source: list[str]) -> None:
    if not name.startswith("generated/"):
        source[0] = on_site(source[0], f"docs/{name}.md")


def _family(family: str) -> str:
    title = attack_table.FAMILIES[family]
    attacks = "".join(_attack(name, kind) for name, kind in attack_table.classes_of(family).items())
    return f"# {title}: `attacks/{family}`\n\n{attack_table.table(family)}\n{attacks}"


def _attack(name: str, kind: type) -> str:
    parts = [f"\n## `{name}`\n"]
    for other, meaning in attack_table.variants_of(name).items():
        parts.append(f"`{other}` stands for `{meaning}`.\n")
    if issubclass(kind, Attack):
        cost = kind(1, kind.norms[0]).cost
        parts.append(f"At most {cost.forwards} forward and {cost.backwards} backward passes of a trial at defaults.\n")
    values = ", ".join(f"`{key}={field.default}`" for key, field in registry.parameters(kind).items())
    parts.append(f"Hyper-parameters: {values}.\n")
    parts.append(_REFERENCE.format(f".. automodule:: {kind.__module__}\n   :no-members:\n   :no-index:"))
    parts.append(_REFERENCE.format(f".. autoclass:: robustkit.attacks.{kind.__name__}"))
    return "\n".join(parts)


def _public() -> str:
    """Functions first: they are what most readers look for."""
    names = sorted(robustkit.__all__)
    functions = [f".. autofunction:: robustkit.{name}" for name in names if name[0].islower()]
    classes = [f".. autoclass:: robustkit.{name}\n   :members:" for name in names if name[0].isupper()]
    classes[0:0] = [
        ".. autoclass:: robustkit.evaluation.request.EvaluationRequest",
        ".. autoclass:: robustkit.evidence.run.Run\n   :members:",
    ]
    sections = {"Functions": functions, "Classes": classes}
    return "# robustkit\n" + "".join(
        f"\n## {title}\n\n{_REFERENCE.format(chr(10).join(entries))}" for title, entries in sections.items()
    )


def _statistics() -> str:
    package = import_module("robustkit.statistics")
    modules = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    parts = ["# robustkit.statistics\n", f"{package.__doc__}\n"]
    for name in modules:
        parts.append(f"## {name.replace('_', ' ').capitalize()}\n")
        parts.append(_REFERENCE.format(f".. automodule:: robustkit.statistics.{name}\n   :members:"))
    return "\n".join(parts)
