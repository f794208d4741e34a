"""Streams that nobody reads any longer."""

import os
from contextlib import suppress
from typing import TextIO


def drop_output(stream: TextIO | None) -> None:
    """Let a stream that can no longer be written swallow everything, also what Python writes at its exit."""
    if stream is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
