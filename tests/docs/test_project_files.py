"""Files about the project agree with each other."""

import re
from pathlib import Path

import robustkit

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_citation_names_the_version_of_the_package():
    assert f"\nversion: {robustkit.__version__}\n" in read("CITATION.cff")


def test_hooks_before_a_commit_run_the_tools_that_the_development_extra_installs():
    config, extra = (
        read(".pre-commit-config.yaml"),
        re.search(r"^dev = \[(.*)\]$", read("pyproject.toml"), re.MULTILINE),
    )
    tools = {entry.split()[0] for entry in re.findall(r"^ +entry: (.*)$", config, re.MULTILINE)}

    assert extra is not None
    assert tools == {"ruff", "mypy"}
    assert all(f'"{tool}>=' in extra[1] for tool in tools)
    assert "rev:" not in config  # a pinned copy elsewhere would be another version
