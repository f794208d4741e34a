"""Models whose name begins with a prefix that says who loads them, such as "hf:"."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from . import robustbench
from .clean_training import Report
from .hub import classifier, clip
from .pixels import PixelModel
from .pretrained import PublishedImages
from .sources import ModelRequest


class PrefixLoader(NamedTuple):
    """Who loads the models of a prefix. They bring their own weights and normalisation."""

    require: Callable[[str], None]  # checks what stands after the prefix, without asking the network
    load: Callable[[ModelRequest, Report], PixelModel]
    images: Callable[[str], PublishedImages]  # of what stands after the prefix; reads no weights


PREFIXES: Mapping[str, PrefixLoader] = {
    classifier.PREFIX: PrefixLoader(classifier.require, classifier.load, classifier.images),
    clip.PREFIX: PrefixLoader(clip.require, lambda request, report: clip.load(request), clip.images),
    robustbench.PREFIX: PrefixLoader(
        robustbench.require, lambda request, report: robustbench.load(request), robustbench.images
    ),
}


class PrefixedName(NamedTuple):
    """A name taken apart."""

    loader: PrefixLoader
    rest: str  # what stands after the prefix


def prefixed(name: str) -> PrefixedName | None:
    """The loader of a name and what stands after its prefix; None if the name has no such prefix."""
    for prefix, loader in PREFIXES.items():
        if name.startswith(prefix):
            return PrefixedName(loader, name.removeprefix(prefix))
    return None
