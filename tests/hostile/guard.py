"""Try a loader on hostile input: what is refused, what is not, and what never answers."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from robustkit.errors import UserError

ROOT = Path(__file__).parents[2]
PATIENCE = 30  # seconds; no case takes one of them, but those that once hung never ended
MEMORY = 500 * 2**20  # bytes more than before


class NoAnswerError(BaseException):
    """Raised out of a call that does not end."""


def outcome(call: Callable[[], object]) -> str:
    """ "refused", or what is wrong with the answer."""
    before = signal.signal(signal.SIGALRM, _no_answer)
    signal.alarm(PATIENCE)
    try:
        return f"accepted: {call()!r}"
    except UserError as error:
        lines = str(error).splitlines()
        return "refused" if len(lines) == 1 and len(lines[0]) < 1000 and lines[0].isprintable() else f"odd: {lines}"
    except NoAnswerError:
        return "no answer"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def not_refused(cases: Iterable[tuple[str, Callable[[], object]]]) -> dict[str, str]:
    """The cases that are not refused in one line, and what they do instead."""
    outcomes = {name: outcome(call) for name, call in cases}
    assert outcomes
    return {name: text for name, text in outcomes.items() if text != "refused"}


def run_limited(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The code in a process of its own, which is ended when it takes too much time or memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        resource.setrlimit(resource.RLIMIT_DATA, (6 * 2**30, 6 * 2**30))

    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, preexec_fn=limit, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def _no_answer(number: int, frame: object) -> None:
    raise NoAnswerError
