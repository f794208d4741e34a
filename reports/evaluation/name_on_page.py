"""The name of the run that a page shows: a folder may be copied or renamed after its page was written."""

import json
from pathlib import Path

from robustkit.evidence.run import Run

_BEGIN, _END = 'id="robustkit-results">', "</script>"
_ROOM = 1 << 16  # bytes that another name may take


def called_as_on_page(run: Run, page: Path, drawn: Path) -> Run | None:
    """The run under the name that a page gives it; None where the page names none, or is not this run's by its size.

    Args:
        run: whose page it should be.
        page: any file.
        drawn: the page of `run` under its own name.
    """
    try:
        if page.stat().st_size > drawn.stat().st_size + _ROOM:
            return None
        data = page.read_text("utf-8").partition(_BEGIN)[2].partition(_END)[0]
        name = json.loads(data)[0]["folder"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # it may hold anything
        return None
    return run.called(name) if isinstance(name, str) and name != run.name else None
