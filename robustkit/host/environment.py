"""Versions and hardware, for the manifest of a run, and the choice of a device. Results do not depend on them."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.version import __version__

_PACKAGES = ("torch", "torchvision", "numpy", "scipy", "pandas")
_EXTRAS = ("timm", "transformers")  # build networks; named where they are used


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and threads of this process."""
    return {
        "robustkit": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in (*_PACKAGES, *(name for name in _EXTRAS if name in sys.modules))},
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def mixed(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about parts of a run that were made by other versions, or on other devices."""
    sentences = []
    for key in ("robustkit", "torch", "device"):
        values = dict.fromkeys(str(each.get(key)) for each in environments)
        if len(values) > 1:
            sentences.append(f"Parts of this run were made with {key} {' and parts with '.join(values)}.")
    return sentences


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def chosen_device(text: str) -> torch.device:
    """The device of a name such as "cpu" or "cuda:1"; "auto" takes a GPU when there is one.

    Raises:
        UserError: this machine has no such device.
    """
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
        torch.zeros(1, device=device).item()
    except Exception as error:  # a kind of device whose package is missing: AttributeError, ImportError and others
        reason = shortened((str(error) or type(error).__name__).splitlines()[0].split(". ")[0])
        raise UserError(f"The device {shortened(text)!r} cannot be used ({reason}); try --device auto.") from None
    return device


@cache  # looking it up reads a file, which takes longer than a small run
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
