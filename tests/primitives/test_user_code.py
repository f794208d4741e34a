import os
import sys
from pathlib import Path

import pytest

from robustkit.errors import UserError
from robustkit.primitives.user_code import class_code, file_code, import_file, import_unchanged

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
