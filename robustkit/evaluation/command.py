"""The command of a run as its evidence shows it, which others read: without the address of a cluster."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path


def this_command() -> str:
    """The command that this process carries out, quoted for a shell, or the Python call."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.stem  # python -m robustkit
    if name != "robustkit":
        return "robustkit.evaluate(...)"
    return shlex.join(["robustkit", *without_addresses(sys.argv[1:])])


def without_addresses(words: Sequence[str]) -> list[str]:
    """The words of a command line, with dots in place of addresses."""
    words = [re.sub(r"(?<=^--ray-address=).*", "...", word, flags=re.DOTALL) for word in words]
    return ["..." if before == "--ray-address" else word for before, word in zip(["", *words], words, strict=False)]
