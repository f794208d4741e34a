import os
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

from robustkit.errors import UserError
from robustkit.primitives.reachable_code import class_code
from robustkit.primitives.user_code import file_code, import_file, import_unchanged

MINE = "import package.inner\nfrom neighbour import WIDTH\n\nclass Mine:\n    width = WIDTH\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "inner.py").write_text("")
    (tmp_path / "neighbour.py").write_text("from far import WIDTH")
    (tmp_path / "far.py").write_text("WIDTH = 64")
    (tmp_path / "stranger.py").write_text("")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


@pytest.mark.parametrize("name", ["mine.py", "neighbour.py", "far.py", "package/__init__.py", "package/inner.py"])
def test_the_hash_of_a_file_depends_on_every_neighbour_that_it_imports(file, name):
    before = file_code(file)
    with (file.parent / name).open("a") as more:
        more.write("\n# another line\n")

    assert file_code(file) != before


def test_the_hash_of_a_file_does_not_depend_on_files_that_it_does_not_import(file):
    before = file_code(file)
    (file.parent / "stranger.py").write_text("WIDTH = 1")

    assert file_code(file) == before


def test_an_import_leaves_no_neighbour_among_pythons_modules(file):
    before, path = set(sys.modules), list(sys.path)
    module = import_file(file).module

    assert module.Mine.width == 64
    assert set(sys.modules) - before == {module.__name__}
    assert sys.path == path


def test_a_file_is_imported_again_only_after_an_edit(file):
    first = import_unchanged(file)
    assert import_unchanged(file) is first

    (file.parent / "far.py").write_text("WIDTH = 32")
    # Python trusts compiled files by the second of the last edit.
    os.utime(file.parent / "far.py", (0, 0))
    assert import_unchanged(file).Mine.width == 32


def test_a_file_that_is_gone_or_fails_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*gone\.py"):
        import_unchanged(tmp_path / "gone.py")

    (tmp_path / "fails.py").write_text("1 / 0")
    with pytest.raises(UserError, match="cannot be imported: ZeroDivisionError: division by zero"):
        import_unchanged(tmp_path / "fails.py")


@pytest.fixture
def in_package(tmp_path: Path) -> Path:
    """A file in the inner of two packages, which uses three ways to import from them and a file beside it."""
    inner = tmp_path / "pkg" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("SCALE = 2\n")
    (inner / "__init__.py").write_text("")
    (tmp_path / "pkg" / "blocks.py").write_text("from . import SCALE\nWIDTH = 8 * SCALE\n")
    (inner / "near.py").write_text("DEPTH = 3\n")
    (inner / "beside.py").write_text("SIDE = 5\n")
    imports = "from ..blocks import WIDTH\nfrom .near import DEPTH\nfrom pkg.inner import near\nimport beside\n"
    body = "class Mine:\n    sizes = WIDTH, DEPTH, near.DEPTH, beside.SIDE\n"
    (inner / "model.py").write_text(imports + body)
    return inner / "model.py"


def test_a_file_in_a_package_imports_from_its_package(in_package):
    """`from .blocks import Net`: attempted relative import with no known parent package."""
    before, path = set(sys.modules), list(sys.path)
    module = import_file(in_package).module

    assert module.Mine.sizes == (16, 3, 3, 5)
    assert pickle.loads(pickle.dumps(module.Mine)) is module.Mine
    assert set(sys.modules) - before == {module.__name__}
    assert sys.path == path


@pytest.mark.parametrize(
    "name", ["pkg/__init__.py", "pkg/blocks.py", "pkg/inner/__init__.py", "pkg/inner/near.py", "pkg/inner/beside.py"]
)
@pytest.mark.parametrize("code", [file_code, lambda file: import_file(file).code])
def test_the_hash_of_a_file_in_a_package_depends_on_what_it_imports_from_the_package(in_package, name, code):
    before = code(in_package)
    with (in_package.parents[2] / name).open("a") as more:
        more.write("# another line\n")

    assert code(in_package) != before


def test_a_package_of_the_same_name_that_was_imported_before_is_not_mistaken_for_it(in_package, monkeypatch):
    other = ModuleType("pkg")
    monkeypatch.setitem(sys.modules, "pkg", other)

    assert import_file(in_package).module.Mine.sizes[0] == 16
    assert sys.modules["pkg"] is other


def test_a_library_of_an_environment_beside_the_file_stays_imported(tmp_path, monkeypatch):
    """Removed with the neighbours, it was imported a second time later, and had every class twice."""
    libraries = tmp_path / "venv" / "lib" / "site-packages"
    libraries.mkdir(parents=True)
    (libraries / "some_library_of_robustkits_tests.py").write_text("")
    (tmp_path / "mine.py").write_text("import some_library_of_robustkits_tests as library")
    monkeypatch.syspath_prepend(str(libraries))
    library = import_file(tmp_path / "mine.py").module.library

    assert sys.modules.pop("some_library_of_robustkits_tests") is library


def test_a_relative_import_without_a_package_names_the_fix(tmp_path):
    (tmp_path / "blocks.py").write_text("")
    (tmp_path / "model.py").write_text("from . import blocks")

    with pytest.raises(UserError, match=r"no known parent package .*; add an empty file __init__\.py to its folder"):
        import_file(tmp_path / "model.py")


def made_without_a_file(body: str) -> type:
    names: dict[str, type] = {}
    exec(
        f"class Mine:\n    size = 3\n    def step(self, x):\n        return [{body} for y in x]",
        {"__name__": "cell"},
        names,
    )
    return names["Mine"]


def test_classes_without_a_file_are_told_apart_by_their_code():
    codes = [class_code(made_without_a_file(body)) for body in ("y + 1", "y + 1", "y + 2")]

    assert codes[0] == codes[1] != codes[2]


def test_a_notebooks_class_had_the_same_code_after_an_edit_of_a_function_that_it_calls():
    def calling(body: str) -> type:
        names: dict[str, type] = {"__name__": "cell"}
        exec(f"def length(x):\n    return {body}\nclass Mine:\n    def step(self, x):\n        return length(x)", names)
        return names["Mine"]

    codes = [class_code(calling(body)) for body in ("x + 1", "x + 1", "x + 2")]

    assert codes[0] == codes[1] != codes[2]


def test_classes_that_a_function_makes_had_the_same_code_whatever_values_they_read():
    def made(length: float) -> type:
        class Mine:
            def step(self, x: float) -> float:
                return x * length

        return Mine

    assert class_code(made(1.0)) == class_code(made(1.0)) != class_code(made(2.0))
