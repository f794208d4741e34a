"""Try a loader on hostile input: what is refused, what is not, and what never answers."""

import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from robustkit.errors import UserError

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


class Ended(NamedTuple):
    """How a process ended."""

    status: int  # -9: killed
    text: str  # of its error


def run_limited(work: Callable[[], None], folder: Path) -> Ended:
    """A function in a fork of this process, which is ended when it takes too much time or memory."""
    told = folder / "told.txt"
    child = os.fork()
    if child == 0:
        try:
            data = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
            resource.setrlimit(resource.RLIMIT_DATA, (data + 6 * 2**30, data + 6 * 2**30))
            work()
            os._exit(0)
        except BaseException:
            told.write_text(traceback.format_exc())
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), told.read_text() if told.exists() else "")


def _no_answer(number: int, frame: object) -> None:
    raise NoAnswerError
