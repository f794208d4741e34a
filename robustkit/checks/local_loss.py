"""An attack's loss around some images, for probes that compare it with what gradients say of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.checks.facts import ModelFacts, ProbeRecord
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.classifier.session import Session
from robustkit.engine.margins import gradient_at
from robustkit.primitives import noise, registry
from robustkit.primitives.protocol import Attack, TrialCost, Trials

_COUNT = 32  # images for each threat
ROUNDING = 1e-4  # of a loss, or absolute where that is below 1: smaller differences are rounding


@dataclass(frozen=True)
class LocalLoss:
    """The loss of one attack around some images, in their order."""

    session: Session
    attack: Attack
    trials: Trials

    @classmethod
    def around(cls, bench: ProbeBench, wanted: Wanted, stream: int, specification: str = "fgsm") -> "LocalLoss":
        """The loss around the images that are wanted.

        Args:
            bench: of the probe.
            wanted: images and threat.
            stream: keeps the random directions apart from those of other probes.
            specification: of the attack whose loss it is.
        """
        # Sums over a row take another path in a batch of one, so a lone image comes with a copy, which callers drop.
        batch = bench.images(wanted.images if len(wanted.images) > 1 else wanted.images * 2)
        key = noise.keys(bench.facts.seed + stream, torch.tensor(list(batch.numbers), dtype=torch.int64, device="cpu"))
        key = key.to(batch.x.device)
        none = torch.full_like(key, -1)
        trials = Trials(batch.x, batch.y.to(key), none, none, key, torch.zeros_like(key))
        return cls(bench.session, registry.build(specification, wanted.place.norm, wanted.place.eps_text), trials)

    @property
    def radius(self) -> float:
        """Of the ball."""
        return self.attack.ball.eps

    def gradient(self) -> Tensor:
        """`[n, *S]` at the images."""
        return gradient_at(self.session, self.attack, self.trials)

    def random_direction(self, draw: int) -> Tensor:
        """`[n, *S]` one of the random directions."""
        x = self.trials.x
        return noise.normal(self.trials.key, draw, x.shape[1:]).to(x)

    def end(self, direction: Tensor, length: float) -> Tensor:
        """`[n, *S]` the end of a step along a direction, in ball and box."""
        x = self.trials.x
        return self.attack.ball.climb(x, x, direction, length)

    def logits(self, points: Tensor) -> Tensor:
        """`[n, K]` of the unmodified network, as attacks see them."""
        (logits,) = self.session.logits_for_attacker([points], self.trials.y, self.trials.x)
        return logits

    def cost(self, usual: TrialCost) -> TrialCost:
        """Of one image: a model that rejects is asked at the image, too, beside each point without a gradient."""
        again = usual.forwards - usual.backwards if self.session.rejects else 0
        return usual + TrialCost(again, 0)

    def at(self, points: Tensor) -> Tensor:
        """`[n]` the loss at points."""
        return self.attack.objective(self.logits(points), self.trials)


class Measured(NamedTuple):
    """What a probe finds at each image."""

    outcomes: Tensor  # [n] bool, whether it found what it looks for
    values: Tensor  # [n]


@dataclass(frozen=True)
class LocalProbe:
    """Passes around some correctly classified images, at each threat that has gradients.

    Args:
        name: what is done, with its settings.
        stream: keeps its random directions apart from those of other probes.
        cost: of one image.
        measure: makes the passes.
    """

    name: str
    stream: int
    cost: TrialCost
    measure: Callable[[LocalLoss], Measured]

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        for place in facts.differentiable:
            yield Wanted(place, self.name, facts.drawn(facts.correct, _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return self.cost

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        local = LocalLoss.around(bench, wanted, self.stream)
        (outcomes, values), cost = self.measure(local), local.cost(self.cost)
        for number, found, value in zip(wanted.images, outcomes.tolist(), values.tolist(), strict=False):
            yield bench.record(wanted, number, found, value, cost.forwards, cost.backwards)
