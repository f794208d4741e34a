"""Networks in a file of their own, without Python: TorchScript, and programs of `torch.export`."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from robustkit.paths import user_path

from .batch_range import BatchesInRange, BatchRange, in_range
from .exported_file import SUFFIX, load_exported
from .exported_graph import ExportedNetwork
from .image_spec import ImageSpec
from .preprocessing import placement
from .script_file import ScriptedNetwork, is_script, load_script

_SCRIPTS = (".pt", ".pth", ".ts", ".jit", ".torchscript")
_ANY, _ONE = BatchRange(1, None), BatchRange(1, 1)


def is_program(name: str) -> bool:
    """Whether a name is the path of a TorchScript file or of an exported program."""
    # By its ending first: the arguments of a call are no path.
    suffix = Path(name).suffix.lower()
    if suffix not in (SUFFIX, *_SCRIPTS):
        return False
    path = user_path(name)
    return path.is_file() and (suffix == SUFFIX or is_script(path))


def load_program(path: Path, images: ImageSpec | None, report: Callable[[str, float | None], None]) -> nn.Module:
    """The network of a file; one that takes only some sizes of batches gets all others in parts, and `report` says so.

    Args:
        path: a TorchScript file or an exported program.
        images: those that it is for, to see which batches a TorchScript file takes.
        report: called with a line of text and None.

    Raises:
        UserError: the file is broken, or more than a network.
    """
    network, batches = load_exported(path) if path.suffix.lower() == SUFFIX else _script(path, images)
    if not batches.free:
        report(f"{path.name} takes batches of {batches} images, so others are cut and filled up: slower", None)
    return in_range(network, batches)


def is_from_file(network: nn.Module) -> bool:
    """Whether a network is one of these, whose layers cannot be opened."""
    inner = network.network if isinstance(network, BatchesInRange) else network
    return isinstance(inner, (ScriptedNetwork, ExportedNetwork))


class _Script(NamedTuple):
    network: nn.Module
    batches: BatchRange


def _script(path: Path, images: ImageSpec | None) -> _Script:
    network = load_script(path)
    return _Script(network, _batches(network, images))


@torch.no_grad()
def _batches(network: nn.Module, images: ImageSpec | None) -> BatchRange:
    """The batches that a TorchScript file takes, tried: a trace may have the size of its example's batch in it."""
    if images is None:
        return _ANY

    def takes(count: int) -> bool:
        assert images is not None
        try:
            network(torch.zeros(count, *images.shape, **placement(network)._asdict()))
        except Exception:  # TorchScript raises errors of its own kind; `require_compatible` shows them
            return False
        return True

    return _ONE if not takes(2) and takes(1) else _ANY
