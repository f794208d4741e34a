"""What the page on rotations, shifts, flow and colours shows is what happens."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "spatial.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_runs(capsys):
    names = {"__name__": "spatial"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/spatial.md", "exec"), names)

    assert capsys.readouterr().out
