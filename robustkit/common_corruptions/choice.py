"""From what a caller writes to a suite of corruptions: "generated", "published", names, or a published folder."""

from collections.abc import Sequence
from pathlib import Path

from robustkit.data import Dataset, LazyData
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import user_path

from .parameters import NAMES, SEVERITIES
from .published import open_published
from .suite import GENERATED, CorruptionSuite, GeneratedSuite, check_pictures

PUBLISHED = "published"
# Where the published versions lie beside the clean data, as in RobustBench.
_FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C", "imagenet": "ImageNet-C", "mnist": "mnist_c"}


def corruption_suite(
    chosen: Sequence[str | Path], data: Dataset, seed: int, severities: Sequence[int] = ()
) -> CorruptionSuite:
    """The corruptions that a caller asks for.

    Args:
        chosen: "generated", "published" (a folder such as CIFAR-10-C beside the files of `data`), or a published
            folder, with or without names of corruptions; names alone are generated.
        data: the clean images.
        seed: of the noise of generated ones.
        severities: of generated ones; empty means all five.

    Raises:
        UserError: there is no such corruption or folder.
    """
    texts = [str(each).strip() for each in chosen]
    sources = [text for text in texts if text in (GENERATED, PUBLISHED) or _is_place(text)]
    names = [text for text in texts if text not in sources]
    if len(sources) > 1:
        raise UserError(
            f"Corruptions come from one place, not from {shortened(' and '.join(sources))}; give each its own run."
        )
    source = sources[0] if sources else GENERATED
    if source == GENERATED:
        check_pictures(data)
        picked = tuple(name for name in NAMES if name in names) if set(names) <= set(NAMES) else tuple(names)
        return GeneratedSuite(picked or NAMES, tuple(sorted(set(severities))) or SEVERITIES, seed)
    if severities:
        raise UserError("Published corruptions have severities of their own; leave the severities out.")
    return open_published(_beside(data) if source == PUBLISHED else user_path(source), names, data)


def _is_place(text: str) -> bool:
    return text not in NAMES and (len(Path(text).parts) > 1 or text.endswith(("/", "\\")) or user_path(text).is_dir())


def _beside(data: Dataset) -> Path:
    """The published folder beside the files of a data set."""
    origin = data.origin if isinstance(data, LazyData) else None
    name = _FOLDERS.get(data.name)
    if name is None or origin is None or origin.data_dir is None:
        raise UserError(f"No published corruptions are known for {data.name}; give their folder in place of published.")
    folder = origin.data_dir / name
    if not folder.is_dir():
        raise UserError(f"There is no folder {shortened(folder)}; copy {name} there, or give its folder.")
    return folder
