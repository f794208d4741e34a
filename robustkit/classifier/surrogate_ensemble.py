"""Several surrogate models as one whose logits are the mean of theirs, for transfer attacks.

Dong et al. 2018, arXiv:1710.06081, section 3.3, with equal weights: points that fool several models at once transfer
better than those that fool one. A query counts as one pass, whatever the number of networks.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.logits import logits_of
from robustkit.errors import UserError


class MeanOfLogits(nn.Module):
    """Networks of the same input; the logits are the mean of theirs."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        sources = [str(getattr(network, "source", "given by the caller")) for network in networks]
        self.source = f"the mean of the logits of: {', '.join(sources)}"

    def forward(self, x: Tensor) -> Tensor:
        """`[B, K]` mean logits."""
        return _mean([network(x) for network in self.networks])


def _mean(outputs: list[object]) -> Tensor:
    logits = [logits_of(output) for output in outputs]
    classes = [each.shape[1] for each in logits]
    if len(set(classes)) > 1:
        raise UserError(f"Surrogates of one ensemble need the same classes, but they have {classes}; leave one out.")
    return torch.stack(logits).mean(0)


torch.fx.wrap("_mean")  # a trace takes it as one operation, so that the networks are still folded


def surrogate_ensemble(classifiers: Sequence[Classifier]) -> Classifier:
    """One classifier whose logits are the mean of those of `classifiers`; it has the settings of the first.

    Raises:
        UserError: their bounds differ, or one does not return plain logits.
    """
    first = classifiers[0]
    if len(classifiers) == 1:
        return first
    for each in classifiers:
        if each.bounds != first.bounds:
            raise UserError(f"Surrogates of one ensemble need the same bounds, not {first.bounds} and {each.bounds}.")
        if any((each.bpda, each.straight_through, each.probabilities, each.smoothing, each.eot, each.rejects)):
            raise UserError(
                f"The surrogate {each.name} is smoothed, averaged over draws, rejects images, or has other gradients "
                "or no logits; an ensemble takes plain models."
            )
    name = "+".join(each.name for each in classifiers)
    return replace(first, model=MeanOfLogits([each.model for each in classifiers]), name=name)
