"""Adversarial images for one training step, made against the network as it is now.

Gradients are taken in the images alone, so the weights' `.grad` is not touched and a step of the attack costs two
passes, not three. Nothing is judged: `k` steps cost `k` forwards and `k` backwards, and one more forward if the attack
keeps its best point.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkit.classifier.answers import answered
from robustkit.engine.lockstep import best_points, run_in_lockstep
from robustkit.engine.own_attacks import begun
from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, Seen, State, Trials
from robustkit.primitives.rows import along, finite, surely_none

from .diverged import Diverged
from .gaussian import Gaussian
from .nfgsm import NFGSM
from .objectives import AttackObjective, Network

_START_NOISE = 1e-3  # TRADES, algorithm 1: standard deviation of the noise that its attack starts with
_START_DRAW = 1 << 20  # number of that draw: no attack counts this far


def craft(
    network: Network, attack: Attack, x: Tensor, y: Tensor, key: Tensor, objective: AttackObjective | None = None
) -> Tensor:
    """`[B, *S]` adversarial images, one trial per image; of several restarts, each image's worst.

    An attack that keeps its best point ends there, any other at its last point.

    Args:
        network: in the mode that the attack should see.
        attack: with its radius.
        x: `[B, *S]` in [0, 1].
        y: `[B]` true classes; hard labels, also where the outer loss smooths them.
        key: `[B]` noise streams.
        objective: what is maximized in place of the attack's own objective.

    Raises:
        Diverged: an input gradient is NaN or infinite.
    """
    crafting = _Crafting(network, attack, x, y, objective)
    points = crafting.run(key)
    if attack.restarts == 1:
        return points
    losses = crafting.loss(points)
    for restart in range(1, attack.restarts):
        new_points = crafting.run(noise.keys(restart, key))
        new_losses = crafting.loss(new_points)
        points = torch.where(along(new_losses > losses, x), new_points, points)
        losses = torch.maximum(new_losses, losses)
    return points


def noise_keys(seed: int, epoch: int, ids: Tensor) -> Tensor:
    """`[B]` noise streams of images in an epoch, independent of batches, order and the number of processes."""
    return noise.keys(seed, torch.full_like(ids, epoch), ids)


@dataclass(frozen=True)
class _Crafting:
    """What the restarts of one batch have in common."""

    network: Network
    attack: Attack
    x: Tensor
    y: Tensor
    objective: AttackObjective | None

    def run(self, key: Tensor) -> Tensor:
        """The points of one restart, inside the ball."""
        state = self._away_from_clean(begun(self.attack, self._trials(key)))
        return self._inside(best_points(run_in_lockstep(self.attack, state, self._answer), self.loss))

    def _inside(self, points: Tensor) -> Tensor:
        """Points that an attack leaves outside, projected as in an evaluation; the others keep their bits."""
        if isinstance(self.attack, NFGSM | Gaussian):  # they leave the ball by their definition
            return points
        ball = self.attack.ball
        outside = ~ball.contains(self.x, points)
        if surely_none(outside):  # saves time and changes no row's value
            return points
        return torch.where(along(outside, points), ball.project(self.x, points), points)

    @torch.no_grad()
    def loss(self, points: Tensor) -> Tensor:
        """`[B]` what the attack maximizes, without a gradient."""
        logits = self.network(points)
        return self.attack.objective(logits, self._trials(self.y)) if self.objective is None else self.objective(logits)

    def _trials(self, key: Tensor) -> Trials:
        no_class = torch.full_like(self.y, -1)
        return Trials(self.x, self.y, no_class, no_class, key, torch.zeros_like(self.y))

    def _away_from_clean(self, state: State) -> State:
        """The state, moved by a little noise if it starts at the clean image under another objective."""
        x = self.x
        if self.objective is None or not torch.equal(state.query, x):
            return state
        # The divergence from the clean prediction has no gradient at the clean image.
        shift = _START_NOISE * noise.normal(state.trial.key, _START_DRAW, x.shape[1:]).to(x)
        return replace(state, query=self.attack.ball.project(x, x + shift))

    def _answer(self, state: State) -> Seen:
        seen = answered(self.attack, state, self.network, objective=self.objective)
        if not finite(seen.grad):
            raise Diverged("The input gradient became NaN or infinite; lower lr, or clip the gradient.")
        return seen
