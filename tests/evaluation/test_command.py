"""What the evidence says was called."""

import pytest

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
