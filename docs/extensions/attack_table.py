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
    parts = [_ensembles(), *(f"\n## {title}\n\n{table(family)}" for family, title in FAMILIES.items())]
    return "".join(parts) + "\n"


def page_with_table(page: str) -> str:
    """The page with the table of today between its two marks."""
    return _BETWEEN.sub(lambda _: whole_table(), page)


def _ensembles() -> str:
    """The newest ensemble of this project and those of AutoAttack, and the names of the earlier ones."""
    newest = ensembles.ALIASES["default"]
    earlier = [name for name in ensembles.ENSEMBLES if name.startswith("rk-") and name != newest]
    lines = [
        f"| {f'`default` = `{name}`' if name == newest else f'`{name}`'} | "
        f"{', '.join(f'`{member}`' for member in ensembles.members(name, 'Linf'))} |\n"
        for name in ensembles.ENSEMBLES if name not in earlier
    ]  # fmt: skip
    names = ", ".join(f"`{name}`" for name in reversed(earlier))
    return (
        f"\n## Ensembles\n\n| name | members in Linf |\n|---|---|\n{''.join(lines)}\nEarlier ensembles of this project "
        f"stay available: {names}.\n[The default attack](default.md) says how they differ.\n"
    )


def _line(name: str, kind: type) -> str:
    variants = {other: registry.VARIANTS[other][1] for other in variants_of(name)}
    others = "".join(f", `{other}`" for other, preset in variants.items() if not preset)
    sees = "gradients" if not issubclass(kind, Attack) else {"logits": "scores"}.get(kind.sees, kind.sees)
    nearest = ", nearest" if getattr(kind, "seeks_nearest", False) else ""
    threats, about = " ".join(kind.norms) or "patch", _about(kind) + _presets(variants)
    return f"| `{name}`{others} | {sees}{nearest} | {threats} | {about} |\n"


def _presets(variants: dict[str, dict[str, object]]) -> str:
    """The names that set hyper-parameters, with what they set."""
    texts = [
        f"`{other}` (`{','.join(f'{key}={value}' for key, value in preset.items())}`)"
        for other, preset in variants.items() if preset
    ]  # fmt: skip
    return f". Presets: {', '.join(texts)}." if texts else ""


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
