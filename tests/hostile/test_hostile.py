"""Every hostile case ends with one line and the right status, changes nothing, and stays within memory and time."""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.cases import CASES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tried() -> Iterator[Callable[[str], list[str]]]:
    """What is wrong with the end of a case, by its name."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def verdict(name: str) -> list[str]:
            server.stdin.write(json.dumps(name) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield verdict
        server.stdin.close()


def test_there_are_at_least_three_hundred_cases():
    assert len(CASES) >= 300


def marked(name: str) -> object:
    """A case of the table, of which one in 48 is tried each time; all with `-m "slow or not slow"`."""
    usual = zlib.crc32(name.encode()) % 48 == 0
    return pytest.param(name, marks=[] if usual else pytest.mark.slow)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the cases need fork and /proc")
@pytest.mark.parametrize("name", [marked(name) for name in CASES])
def test_a_hostile_case_is_handled(name, tried):
    assert tried(name) == []
