"""The rooms of the package: which may import which, and what a room may contain."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
WINGS = ("attacks", "defenses", "reports")

# From the ground up: a room imports itself and rooms on lower floors, nothing beside it and nothing above.
FLOORS = (
    ("errors", "version"),
    ("limits",),
    ("paths",),
    ("host",),
    ("primitives", "nethook"),
    ("statistics",),
    ("data",),
    ("common_corruptions",),
    ("black_box",),
    ("models",),
    ("classifier",),
    ("engine",),
    ("testing",),
    ("checks",),
    ("evidence",),
    ("evaluation",),
    ("adversarial_examples", "attacks", "comparison", "defenses", "diagnosis", "masked_defenses", "tracing"),
    ("reports",),
    ("cli",),
)
FLOORS_OF_DEFENSES = (("inner_attack",), ("weights",), ("training",), ("cost",), ("ablation",))
FLOORS_OF_REPORTS = (("shared",), ("diagnosis",), ("ablation", "comparison", "evaluation", "trace"))


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts if parts[0] == "robustkit" else ("robustkit", *parts))
    return name.removesuffix(".__init__")


FILES = {module_name(file): file for top in ("robustkit", *WINGS) for file in sorted((ROOT / top).rglob("*.py"))}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """All nodes of a module; to walk through them again takes as long as to parse it."""
    return tuple(ast.walk(tree(name)))


@pytest.fixture(scope="module", autouse=True)
def _forgotten_trees() -> Iterator[None]:
    """Half a million nodes would slow the garbage collector down for all other tests."""
    yield
    tree.cache_clear()
    nodes.cache_clear()


def imports_of(name: str) -> Iterator[str]:
    """Modules and names that a module of the package imports from the package, also within functions."""
    file = FILES[name]
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in nodes(name):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("robustkit"))
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            if source.partition(".")[0] == "robustkit":
                yield from (f"{source}.{alias.name}" for alias in node.names)


def resolved(name: str) -> str:
    """The module that an imported name stands in."""
    while name not in FILES:
        name = name.rpartition(".")[0]
    return name


@cache
def arrows() -> dict[str, set[str]]:
    """Which modules each module imports; not while tests are collected, which every worker does."""
    return {name: {resolved(target) for target in imports_of(name)} - {name} for name in FILES}


def floor_of(room: str, floors: tuple[tuple[str, ...], ...]) -> int:
    return next(number for number, rooms in enumerate(floors) if room in rooms)


def upward(prefix: str, floors: tuple[tuple[str, ...], ...]) -> list[str]:
    """Imports from a room of `prefix` to a room beside or above it."""

    def room(name: str) -> str | None:
        inner = name.removeprefix(prefix).split(".")
        return inner[0] if name.startswith(prefix) and any(inner[0] in rooms for rooms in floors) else None

    return [
        f"{name} -> {target}"
        for name, targets in arrows().items()
        for target in sorted(targets)
        if (here := room(name)) and (there := room(target)) and here != there
        and floor_of(here, floors) <= floor_of(there, floors)
    ]  # fmt: skip


def test_every_folder_stands_on_a_floor():
    rooms = {name.split(".")[1] for name in FILES if name.count(".")} - {"__main__"}

    assert rooms == {room for rooms in FLOORS for room in rooms}


TENSORS_FROM_NOTHING = {
    "arange", "as_tensor", "asarray", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint",
    "randn", "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip


def test_each_new_tensor_names_its_device():
    # With torch.set_default_device("cuda") numbers of images were on the GPU, and a run ended in a TypeError.
    silent = [
        f"{name}:{call.lineno}"
        for name in FILES
        for call in nodes(name)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
        and call.func.attr in TENSORS_FROM_NOTHING and not any(key.arg in ("device", None) for key in call.keywords)
    ]  # fmt: skip

    assert not silent


@pytest.mark.parametrize(
    ("prefix", "floors"),
    [
        ("robustkit.", FLOORS),
        ("robustkit.defenses.", FLOORS_OF_DEFENSES),
        ("robustkit.reports.", FLOORS_OF_REPORTS),
    ],
    ids=["package", "defenses", "reports"],
)
def test_imports_go_down_only(prefix, floors):
    assert not upward(prefix, floors)


def test_no_modules_import_each_other_in_a_circle():
    # Packages' __init__ files only hand on names: `from robustkit.data import x` means the module that has x.
    plain = {name: {target for target in targets if FILES[target].name != "__init__.py"}
             for name, targets in arrows().items() if FILES[name].name != "__init__.py"}  # fmt: skip
    while True:
        free = {name for name, targets in plain.items() if not targets & plain.keys()}
        if not free:
            break
        plain = {name: targets for name, targets in plain.items() if name not in free}

    assert not plain


def test_no_wing_imports_another():
    def wing(name: str) -> str | None:
        return next((part for part in name.split(".")[1:2] if part in WINGS), None)

    assert [
        f"{name} -> {target}"
        for name, targets in arrows().items()
        for target in sorted(targets)
        if wing(name) and wing(target) and wing(name) != wing(target)
    ] == []


def test_a_public_class_name_stands_for_one_class():
    places = defaultdict(list)
    for name in FILES:
        for node in tree(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)

    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_the_packages_that_are_installed_are_those_of_the_tree():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]

    assert set(settings["packages"]) == {name for name, file in FILES.items() if file.name == "__init__.py"}
    assert settings["package-dir"] == {"robustkit": "robustkit", **{f"robustkit.{wing}": wing for wing in WINGS}}


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("robustkit.attacks.")])
def test_an_attack_calls_no_model_and_draws_no_global_numbers(name):
    names = {node.attr for node in nodes(name) if isinstance(node, ast.Attribute)}

    # LinBP's hooks, within the engine's query, differentiate a residual branch once more; the other two files
    # differentiate transformations of images.
    allowed = {"autograd"} if name.endswith((".linbp", "._copies", ".ssa")) else set()
    forbidden = {"rand", "randn", "rand_like", "randn_like", "randint", "manual_seed", "backward", "autograd"}
    assert not names & (forbidden - allowed)
