"""The page about new attacks: its code runs as it stands there, outside of the package and in it."""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import pytest
import robustkit.attacks.gradient

from robustkit.cli import main
from robustkit.primitives import registry
from tests.small import data, save

PAGE = (Path(__file__).parents[1] / "docs" / "new-attack.md").read_text("utf-8")
FILE, *BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OUTSIDE, INSIDE = (block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "net.py").write_text("from tests import small\n\ndef factory():\n    return small.linear()\n")
    save(tmp_path / "digits.npz", *data(16))
    yield tmp_path
    for name in ("mine", "robustkit.attacks.gradient.mine"):
        sys.modules.pop(name, None)
    registry.classes.cache_clear()


def run(line: str) -> str:
    """What a line of the shell prints, on a smaller model and fewer images."""
    for long, short in (("-d digits", "-d digits.npz"), ("-m resnet18", "-m net.py:factory"), ("-n 64", "-n 8")):
        line = line.replace(long, short)
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as end:
        main(shlex.split(line)[1:])
    assert not end.value.code
    return printed.getvalue()


def test_the_code_of_the_page_does_what_the_page_says(folder):
    (folder / "mine.py").write_text(FILE)
    names = {"__name__": "page"}
    for block in BLOCKS:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, "docs/new-attack.md", "exec"), names)

        assert printed.getvalue().splitlines() == re.findall(r"# -> (.*)$", block, re.MULTILINE)


def test_a_file_outside_of_the_package_is_evaluated_by_its_path(folder):
    (folder / "mine.py").write_text(FILE)

    assert "mine.mine:steps=20,first=2" in run(*OUTSIDE)


def test_a_file_in_the_package_is_listed_tested_and_evaluated_without_another_edit(folder, monkeypatch):
    # As if the file lay in attacks/gradient/.
    (folder / "gradient").mkdir()
    (folder / "gradient" / "mine.py").write_text(FILE)
    gradient = robustkit.attacks.gradient
    monkeypatch.setattr(gradient, "__path__", [*gradient.__path__, str(folder / "gradient")])
    registry.classes.cache_clear()
    listing, tests, evaluation = INSIDE

    assert re.search(r"^mine .*steps=10,loss=log-odds,first=1.0$", run(listing), re.MULTILINE)
    assert "mine" in run(evaluation)
    assert robustkit.attacks.Mine is registry.classes()["mine"]
    # tests/test_contract.py runs over the attacks of the registry.
    assert tests == "pytest tests/test_contract.py -k mine"
