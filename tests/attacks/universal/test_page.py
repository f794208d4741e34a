"""The code of docs/universal.md runs as it stands there."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "universal.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_page_runs(capsys):
    exec(compile(BLOCK, "docs/universal.md", "exec"), {"__name__": "page"})

    assert len(capsys.readouterr().out.splitlines()) == 3
