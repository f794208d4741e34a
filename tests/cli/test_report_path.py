"""The path of a report is a link in a terminal, and plain text everywhere else."""

import io
import sys

import pytest

from robustkit.cli.terminal import print_report_path


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_gets_a_link(terminal, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdout", Stream(terminal))
    monkeypatch.setenv("TERM", "xterm-256color")
    file = tmp_path / "a b\x1b]8;;evil" / "report.html"
    print_report_path(file, str(file), "  results.csv")
    text = sys.stdout.getvalue()

    assert (f";{file.as_uri()}\x1b\\" in text) == terminal
    assert text.count("\x1b") == (4 if terminal else 0)
    assert text.strip().endswith("results.csv")
