"""The loss of an attack follows the margin: where it rises, the image comes nearer to an error.

Tramer et al. 2020, arXiv:2002.08347, ask for a loss that is consistent with success. Ours takes Spearman's correlation
of the loss with the lead of the likeliest wrong class at points around the image: along the gradient, against it, and
in random directions. Losses with a target class are left out: they may lead away from the nearest error and are right.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from robustkit.checks.black_box_wins import gradient_attacks
from robustkit.checks.check import Finding, Rule, not_run, surely_more
from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat
from robustkit.checks.local_loss import LocalLoss
from robustkit.checks.probing import REFUSED, ProbeBench, RunAttacks, Wanted
from robustkit.checks.survivors import why_no_gradients
from robustkit.primitives import losses
from robustkit.primitives.protocol import TrialCost

_COUNT = 12
_STREAM = 0x434F4E53
_LENGTHS = (0.25, 0.5, 0.75, 1.0)  # of the radius
_DIRECTIONS = 4  # random ones, beside the gradient and its opposite
# The catalogue of checks says 0.5, but DLR, which divides by a difference of other logits, orders points around honest
# linear networks by less. At 0 and below a loss does not lead to errors at all.
_LEAST = 0.0
_MOST = 0.2  # lower end of the share of images
_PREFIX = "loss against margin in "


class ConsistencyProbe:
    """For each image and each attack with gradients, the rank correlation of its loss with the margin."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        if facts.transferred:
            return
        names = _names(facts)
        for place in facts.differentiable:
            for name in names:
                yield Wanted(place, _PREFIX + name, facts.drawn(facts.correct, _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(1 + len(_LENGTHS) * (2 + _DIRECTIONS), 1)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        local = LocalLoss.around(bench, wanted, _STREAM)
        named = zip((str(entry["name"]) for entry in bench.facts.attacks), bench.attacks(wanted.place), strict=False)
        attack = dict(named)[wanted.probe.removeprefix(_PREFIX)]
        gradient = local.gradient()
        directions = [gradient, -gradient, *(local.random_direction(draw) for draw in range(_DIRECTIONS))]
        objectives, margins = [], []
        for direction in directions:
            for share in _LENGTHS:
                logits = local.logits(local.end(direction, share * local.radius))
                objectives.append(attack.objective(logits, local.trials))
                margins.append(losses.margin(logits, local.trials.y))
        values = zip(torch.stack(objectives, 1), torch.stack(margins, 1), wanted.images, strict=False)
        for loss, margin, number in values:
            rho = _spearman(loss, margin)
            cost = local.cost(self.at_most(wanted, bench.attacks))
            yield bench.record(wanted, number, rho <= _LEAST, rho, cost.forwards, cost.backwards)


def _names(facts: ModelFacts) -> list[str]:
    """The attacks with gradients and without target classes, of the run itself."""
    with_gradients = gradient_attacks(facts.attacked)
    return [
        str(entry["name"]) for entry in facts.attacks
        if entry["name"] in with_gradients and not entry.get("targets") and not str(entry["name"]).startswith("audit/")
    ]  # fmt: skip


def _spearman(one: Tensor, other: Tensor) -> float:
    """The rank correlation; 1 where the margin does not change, and 0 where the loss alone does not."""
    from scipy.stats import rankdata

    first, second = (torch.from_numpy(rankdata(each.double().cpu().numpy())) for each in (one, other))
    first, second = first - first.mean(), second - second.mean()
    if not bool(second.any()):
        return 1.0
    size = float(first.norm() * second.norm())
    return float(first @ second) / size if size > 0 else 0.0


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat, about the attack whose loss is worst."""
    wanted = list(ConsistencyProbe().wanted(facts))
    if not wanted:
        yield Finding(
            "",
            "not_applicable",
            f"No attack followed the gradient of a loss without a target. {why_no_gradients(facts)}",
        )
    for place in dict.fromkeys(each.place for each in wanted):
        yield _finding(place, [each for each in wanted if each.place == place], facts)


def _finding(place: RunThreat, wanted: list[Wanted], facts: ModelFacts) -> Finding:
    parts = {each.probe.removeprefix(_PREFIX): facts.probed(place, each.probe, each.images) for each in wanted}
    asked = {name: rows for name, rows in parts.items() if rows is not None}
    if len(asked) < len(parts):
        return not_run(place.text)
    asked = {name: rows for name, rows in asked.items() if all(row.value != REFUSED for row in rows)}
    if not asked:
        return Finding(place.text, "not_applicable", "The losses of these attacks cannot be computed alone.")
    name = max(asked, key=lambda each: sum(row.outcome for row in asked[each]))
    bad = tuple(row.sample for row in asked[name] if row.outcome)
    text = (
        f"around {len(bad)} of {len(asked[name])} images the loss of {name} does not rise with the margin "
        "(rank correlation of 0 or less)."
    )
    numbers = {"inconsistent": len(bad), "images": len(asked[name])}
    many = surely_more(len(bad), len(asked[name]), _MOST)
    return Finding(place.text, "warning" if many else "ok", text, bad, numbers)


RULE = Rule(
    name="consistent_loss",
    title="The attacks' losses follow the margin",
    level="full",
    severity="major",
    note="the loss does not follow the margin",
    remedy="Take a loss that rises with the margin, such as robustkit evaluate --attack pgd:loss=log-odds.",
    judge=judge,
    probes=(ConsistencyProbe(),),
)
