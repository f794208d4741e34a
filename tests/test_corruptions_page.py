"""What the page on corruptions shows is what happens."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "corruptions.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_runs(capsys):
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/corruptions.md", "exec"), {"__name__": "corruptions"})

    assert "pixelate" in capsys.readouterr().out
