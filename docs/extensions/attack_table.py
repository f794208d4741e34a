"""The attacks of the registry as tables in Markdown: their names, what they see, their norms, and whose idea they are.

`python docs/extensions/attack_table.py` writes the table of docs/attacks.md again; a test says when that is needed.
"""

import inspect
import re
from pathlib import Path

from robustkit.primitives import ensembles, registry
from robustkit.primitives.papers import Paper, paper_of
from robustkit.primitives.protocol import Attack

PAGE = Path(__file__).parents[1] / "attacks.md"
FAMILIES = {
    "gradient": "Gradients",
    "minimum_norm": "The nearest adversarial example",
    "score": "Scores",
    "decision": "Labels",
    "spatial": "Rotations, shifts and flow",
    "perceptual": "Features (LPIPS)",
    "transfer": "Transfer",
    "universal": "One perturbation for all images",
}
_BETWEEN = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of the table -->)", re.DOTALL)


def family_of(kind: type) -> str:
    """The folder of an attack's file."""
    return kind.__module__.split(".")[-2]


def classes_of(family: str) -> dict[str, type]:
    """The attacks of a folder by name."""
    known = {**registry.classes(), **registry.universal_classes()}
    return {name: kind for name, kind in sorted(known.items()) if family_of(kind) == family}


def table(family: str) -> str:
    """The attacks of a folder, one line each."""
    head = "| name | sees | threats | what it is |\n|---|---|---|---|\n"
    return head + "".join(_line(name, kind) for name, kind in classes_of(family).items())


def variants_of(name: str) -> dict[str, str]:
    """Other names of an attack, each with what it stands for."""
    return {
        other: ":".join(filter(None, (base, ",".join(f"{key}={value}" for key, value in preset.items()))))
        for other, (base, preset) in sorted(registry.VARIANTS.items())
        if base == name
    }


def whole_table() -> str:
    """The ensembles and all folders, each with a heading."""
    parts = ["\n## Ensembles\n\n| name | members in Linf |\n|---|---|\n" + "".join(
        f"| `{name}` | {', '.join(f'`{member}`' for member in ensembles.members(name, 'Linf'))} |\n"
        for name in ensembles.names())]  # fmt: skip
    parts += [f"\n## {title}\n\n{table(family)}" for family, title in FAMILIES.items()]
    return "".join(parts) + "\n"


def page_with_table(page: str) -> str:
    """The page with the table of today between its two marks."""
    return _BETWEEN.sub(lambda _: whole_table(), page)


def _line(name: str, kind: type) -> str:
    others = "".join(f", `{other}`" for other in variants_of(name))
    sees = "gradients" if not issubclass(kind, Attack) else {"logits": "scores"}.get(kind.sees, kind.sees)
    nearest = ", nearest" if getattr(kind, "seeks_nearest", False) else ""
    return f"| `{name}`{others} | {sees}{nearest} | {' '.join(kind.norms) or 'patch'} | {_about(kind)} |\n"


def _about(kind: type) -> str:
    """What the module's docstring says first, and the first paper that it names."""
    text = inspect.getdoc(inspect.getmodule(kind)) or ""
    first, _, _ = text.partition("\n\n")
    paper = paper_of(kind)
    return first.replace("\n", " ").replace("|", "\\|") + (f" {_cited(paper)}" if paper else "")


def _cited(paper: Paper) -> str:
    """A link where there is a preprint."""
    server, _, number = paper.place.partition(":")
    authors = f"{paper.authors} {paper.year}"
    return f"[{authors}](https://arxiv.org/abs/{number})" if server == "arXiv" else f"{authors}, {paper.place}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text("utf-8")), "utf-8")
