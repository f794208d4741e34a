"""The library that builds Hugging Face's networks: imported where it is needed, and quiet."""

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from robustkit.errors import UserError
from robustkit.limits import shortened


def require_transformers(name: str) -> None:
    """Check that transformers can be imported; `name` is the model that needs it.

    Raises:
        UserError: it is not installed.
    """
    try:
        importlib.import_module("transformers")
    except ImportError as error:
        raise UserError(f"{shortened(name)} needs transformers; install it: pip install transformers.") from error


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The module `transformers` without its log messages, and without progress bars over fractions of a second."""
    # By its name: type checkers would read the whole library.
    transformers: Any = importlib.import_module("transformers")
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    try:
        yield transformers
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
