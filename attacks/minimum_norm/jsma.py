"""JSMA: in each step, changes the one or two values that most raise a wrong class and lower the other classes.

Papernot, McDaniel, Jha, Fredrikson, Celik & Swami 2016, arXiv:1511.07528: the saliency map of equation 8, and the pairs
of algorithm 3. Ours differs: a step may raise one value and lower another, where the paper has one attack for each; a
derivative is multiplied by the change that the box allows; the class aimed at is the likeliest wrong class of each
query, unless the trial aims at one; the best pair is found without comparing all pairs (`_saliency.py`).
Bad at: sparse errors: sigma-zero and VFGA change a third to a half as many values; restarts, which are all the same.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import unknown
from robustkit.primitives import losses
from robustkit.primitives.ball import levelled
from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import MultiGradientAttack, MultiGradientSeen, Seen, State, TrialCost, Trials

from ._saliency import Gains, best_one, best_pair

DIRECTIONS = ("both", "up", "down")


@dataclass(frozen=True)
class JSMA(MultiGradientAttack):
    """Jacobian-based saliency map attack in L0.

    Args:
        steps: the most steps of a trial, which ends at the first error.
        step_size: the most by which a step changes a value; theta in the paper.
        pairs: change two values in a step instead of one.
        direction: "up" only raises values, "down" only lowers them, "both" does both.
    """

    _: KW_ONLY
    steps: int = 100
    step_size: float = 1.0
    pairs: bool = True
    direction: str = "both"

    norms = ("L0",)
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.positive("step_size")
        self.share("step_size")
        if self.direction not in DIRECTIONS:
            raise unknown("direction of JSMA", limits.shown(self.direction), DIRECTIONS)

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 2, 2 * (self.steps + 1))

    def init(self, trials: Trials) -> NearestState:
        return begin_nearest(trials, trials.x)

    def objectives(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B, 2]` the logit of the class aimed at, and the sum of all others."""
        likeliest = losses.without(logits.detach(), trials.y).argmax(1)
        aimed = torch.where(trials.loss_target >= 0, trials.loss_target, likeliest)
        aimed = torch.where(trials.target >= 0, trials.target, aimed).unsqueeze(1)
        return torch.stack([logits.gather(1, aimed).squeeze(1), logits.scatter(1, aimed, 0).sum(1)], 1)

    def step(self, state: State, seen: Seen) -> NearestState:
        assert isinstance(state, NearestState)
        assert isinstance(seen, MultiGradientSeen)
        closest = nearest(state, seen.label, self.ball)
        query = closest.or_else(self._changed(state.trial.x, state.query, seen.grads))
        over = self.ball.distance(state.trial.x, query) > self.ball.eps
        stuck = (query == state.query).flatten(1).all(1)
        done = closest.error | over | stuck | (state.queries >= self.steps)
        return replace(
            state, query=query, queries=state.queries + 1, done=done, nearest=closest.point, distance=closest.distance
        )

    def _changed(self, x: Tensor, point: Tensor, grads: Tensor) -> Tensor:
        """The point after one step; unchanged where no change raises the class aimed at and lowers the others."""
        flat, (towards, others) = point.flatten(1), (levelled(grad).flatten(1) for grad in grads.unbind(1))
        up, down = (1 - flat).clamp(max=self.step_size), -flat.clamp(max=self.step_size)
        moves = torch.cat([up * (self.direction != "down"), down * (self.direction != "up")], 1)
        # A value that was raised is never lowered again, and vice versa: steps could undo each other endlessly.
        possible = (moves != 0) & (moves * (flat - x.flatten(1)).repeat(1, 2) >= 0)
        gains = Gains(towards.repeat(1, 2) * moves, -others.repeat(1, 2) * moves, possible)
        place, score = best_one(gains)
        chosen = torch.zeros_like(moves).scatter(1, place, (score > 0).to(moves))
        if self.pairs:
            places, score = best_pair(gains)
            both = torch.zeros_like(moves).scatter(1, places, 1)
            chosen = torch.where(score > 0, both, chosen)
        raised, lowered = (moves * chosen).chunk(2, 1)
        return (flat + raised + lowered).clamp(0, 1).reshape(point.shape)
