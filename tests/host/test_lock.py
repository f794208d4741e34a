"""One process in a folder."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from robustkit.errors import UserError
from robustkit.host.lock import claimed, locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked on Windows")

TRY = """
import sys
from pathlib import Path
from robustkit.host.lock import locked
with locked(Path(sys.argv[1])):
    pass
"""


def another_process(folder: Path) -> str:
    root = Path(__file__).parents[2]
    path = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", TRY, folder], check=False, env=path, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def test_a_folder_is_locked_for_other_processes_until_the_work_ends(tmp_path):
    with locked(tmp_path / "out"):
        during = another_process(tmp_path / "out")
        (tmp_path / "out" / "file").touch()

    assert "at work" in during
    assert another_process(tmp_path / "out") == ""
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["file"]


def test_the_same_work_may_lock_its_folder_again_and_other_work_may_not(tmp_path):
    refused = []

    def other() -> None:
        with pytest.raises(UserError, match="at work"), locked(tmp_path):
            pass
        refused.append(True)

    with locked(tmp_path):
        with locked(tmp_path):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    assert refused


def test_an_empty_folder_is_removed(tmp_path):
    with locked(tmp_path / "a"):
        pass

    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["out", "n" * 255])
def test_an_output_that_does_not_exist_yet_is_claimed_once_and_what_a_killed_process_left_is_removed(name, tmp_path):
    with claimed(tmp_path / name):
        (hidden,) = tmp_path.iterdir()
    hidden.mkdir()
    with claimed(tmp_path / name):
        assert "at work" in another_process(hidden)

    assert not any(tmp_path.iterdir())
