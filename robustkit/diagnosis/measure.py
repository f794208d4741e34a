"""The response of each layer call to a perturbation of the images, batch by batch."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from robustkit.nethook import Trace, get_module
from robustkit.nethook.hooked import Inputs

from .calls import CallRun, ForwardCalls, Site, record_calls
from .fidelity import Response, response
from .subject import Subject, as_float64


def calls_of(subject: Subject) -> ForwardCalls:
    """The calls of one forward pass of two images."""
    with torch.no_grad():
        return record_calls(subject.classifier.network, lambda: subject.logits(subject.x[:2]))


def responses(subject: Subject, runs: Iterable[CallRun]) -> dict[Site, Response]:
    """The response of each call; calls whose two inputs cannot be compared are left out."""
    wanted = list(runs)
    if not wanted:
        return {}
    parts = [_responses(batch, wanted) for batch in subject.batches()]
    complete = [run.site for run in wanted if all(run.site in part for part in parts)]
    return {site: Response(*(torch.cat(column) for column in zip(*(part[site] for part in parts), strict=True)))
            for site in complete}  # fmt: skip


def inputs_of(subject: Subject, sites: Sequence[Site], points: Tensor) -> dict[Site, Inputs]:
    """Copies of the inputs of calls when the model runs on `points`."""
    layers = list(dict.fromkeys(site.layer for site in sites))
    with torch.no_grad(), Trace(subject.classifier.network, layers, output=False, input=True, strict=False) as trace:
        subject.logits(points)
    inputs = {Site(call.name, call.index): Inputs(call.args, call.kwargs) for call in trace.calls}
    return {site: inputs[site] for site in sites if site in inputs}


def _responses(batch: Subject, runs: Sequence[CallRun]) -> dict[Site, Response]:
    sites = [run.site for run in runs]
    clean, perturbed = inputs_of(batch, sites, batch.x), inputs_of(batch, sites, batch.perturbed)
    measured = {}
    for run in runs:
        site = run.site
        # Popped: an input is not needed once its call was measured.
        start, end = clean.pop(site, None), perturbed.pop(site, None)
        if start is None or end is None:
            continue
        module = get_module(batch.classifier.network, site.layer)
        with run.precision(batch.x.device):
            answer = response(module, start, end, len(batch.x), batch.seed)
        if answer is not None:
            measured[site] = Response(*(as_float64(values) for values in answer))
    return measured
