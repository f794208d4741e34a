"""What the page on LPIPS shows is what happens."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "perceptual.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_runs(capsys):
    names = {"__name__": "perceptual"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/perceptual.md", "exec"), names)

    assert len(capsys.readouterr().out.splitlines()) == 2
