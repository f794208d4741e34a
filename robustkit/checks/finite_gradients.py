"""Gradients are finite: where one is NaN or infinite, an attack that follows it cannot take a step.

Attacks of robustkit that meet one stop with an error. A run of attacks without gradients never meets it.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from robustkit.checks.check import Finding, Rule, graded, not_run, surely_more
from robustkit.checks.facts import ModelFacts, ProbeRecord
from robustkit.checks.local_loss import LocalLoss
from robustkit.checks.probing import REFUSED, ProbeBench, RunAttacks, Wanted
from robustkit.checks.survivors import why_no_gradients
from robustkit.primitives.protocol import TrialCost

_COUNT = 32
_STREAM = 0x46494E49
_PROBE = "finite gradients of log-odds and cross-entropy"
_MOST = 0.05  # lower end of the share of images


class FiniteProbe:
    """For each image, whether a gradient at it is NaN or infinite."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        for place in facts.differentiable[:1]:
            yield Wanted(place, _PROBE, facts.drawn(facts.correct, _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(2, 2)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        gradients = [LocalLoss.around(bench, wanted, _STREAM, attack).gradient() for attack in ("fgsm", "fgsm:loss=ce")]
        broken = torch.stack([~_finite(gradient) for gradient in gradients]).any(0).tolist()
        for number, found in zip(wanted.images, broken, strict=False):
            yield bench.record(wanted, number, found, 0.0, 2, 2)


def _finite(gradient: Tensor) -> Tensor:
    return gradient.isfinite().flatten(1).all(1)


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding about the model: gradients at clean images are those of every threat."""
    wanted = next(FiniteProbe().wanted(facts), None)
    if wanted is None:
        yield Finding("", "not_applicable", why_no_gradients(facts))
        return
    rows = facts.probed(wanted.place, wanted.probe, wanted.images)
    if rows is None:
        yield not_run()
        return
    if any(row.value == REFUSED for row in rows):
        yield Finding("", "not_applicable", "No gradient reaches the image.")
        return
    broken = tuple(row.sample for row in rows if row.outcome)
    status = graded(failed=surely_more(len(broken), len(rows), _MOST), warning=bool(broken))
    text = f"{len(broken)} of {len(rows)} images have a gradient that is NaN or infinite."
    yield Finding("", status, text, broken, {"broken": len(broken), "images": len(rows)})


RULE = Rule(
    name="finite_gradients",
    title="Gradients are finite",
    level="standard",
    severity="invalidating",
    note="gradients are not finite",
    remedy="Look for a square root, a logarithm or a division at zero: robustkit diagnose names the layer.",
    judge=judge,
    probes=(FiniteProbe(),),
)
