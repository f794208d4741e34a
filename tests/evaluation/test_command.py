"""What the evidence says was called."""

import shlex

import pytest

from robustkit.cli.output import command_line
from robustkit.evaluation.command import this_command


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/venv/bin/robustkit", "robustkit evaluate -m net.py:make"),
        ("robustkit.exe", "robustkit evaluate -m net.py:make"),
        ("/venv/lib/robustkit/__main__.py", "robustkit evaluate -m net.py:make"),  # python -m robustkit
        ("/home/tools/__main__.py", "robustkit.evaluate(...)"),
        ("study.py", "robustkit.evaluate(...)"),
        ("", "robustkit.evaluate(...)"),
    ],
)
def test_a_command_is_written_as_it_was_typed_and_a_call_from_python_as_one(program, words, monkeypatch):
    monkeypatch.setattr("sys.argv", [program, "evaluate", "-m", "net.py:make"])

    assert this_command() == words


@pytest.mark.parametrize("written", [this_command, command_line])
def test_a_written_command_can_be_pasted_into_a_shell(written, monkeypatch):
    words = ["finetune", "-m", "net.py:make(width=8)", "--set", "freeze=0:all-but:fc;2:none", "--name", r"it's a\,b"]
    monkeypatch.setattr("sys.argv", ["robustkit", *words])

    assert shlex.split(written()) == ["robustkit", *words]
