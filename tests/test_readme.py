"""What the README shows is what happens."""

import re
from pathlib import Path

import pytest

from robustkit.primitives import ensembles, registry

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_python_of_the_readme_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})

    assert capsys.readouterr().out


def test_the_readme_names_every_attack() -> None:
    table = README[README.index("## Attacks") : README.index("## What a number")]

    assert all(f"`{name}`" in table for name in [*registry.names(), *ensembles.names()])
