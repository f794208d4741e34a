"""How each call of a network answers a move of the images, batch by batch."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from robustkit.nethook import Trace, get_module
from robustkit.nethook.hooked import Inputs

from .calls import Map, Site, mapped_out
from .fidelity import Response, response
from .question import Question, kept


def survey(question: Question) -> Map:
    """The calls of one forward pass of two images."""
    with torch.no_grad():
        return mapped_out(question.classifier.network, lambda: question.ask(question.x[:2]))


def responses(question: Question, sites: Iterable[Site]) -> dict[Site, Response]:
    """The answer of each call; calls whose two inputs cannot be compared are left out."""
    wanted = list(sites)
    if not wanted:
        return {}
    found = [_responses(part, wanted) for part in question.parts()]
    whole = [site for site in wanted if all(site in part for part in found)]
    return {site: Response(*(torch.cat(column) for column in zip(*(part[site] for part in found), strict=True)))
            for site in whole}  # fmt: skip


def inputs_of(question: Question, sites: Sequence[Site], points: Tensor) -> dict[Site, Inputs]:
    """Copies of what calls are given when the model is asked at `points`."""
    layers = list(dict.fromkeys(site.layer for site in sites))
    with torch.no_grad(), Trace(question.classifier.network, layers, output=False, input=True, strict=False) as trace:
        question.ask(points)
    found = {Site(call.name, call.index): Inputs(call.args, call.kwargs) for call in trace.calls}
    return {site: found[site] for site in sites if site in found}


def _responses(part: Question, sites: Sequence[Site]) -> dict[Site, Response]:
    still, moved = inputs_of(part, sites, part.x), inputs_of(part, sites, part.moved)
    found = {}
    for site in sites:
        # Popped: an input is not needed once its call was measured.
        start, end = still.pop(site, None), moved.pop(site, None)
        if start is None or end is None:
            continue
        module = get_module(part.classifier.network, site.layer)
        answer = response(module, start, end, len(part.x), part.seed)
        if answer is not None:
            found[site] = Response(*(kept(values) for values in answer))
    return found
