"""Warnings that point to the line of the caller's own code."""

import sys
import warnings


def warn(text: str) -> None:
    """Warn at the line that called into robustkit, however deep in the package the cause was noticed."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "robustkit":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
