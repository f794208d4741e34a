"""Adversarial images for one training step: the attack against the network as it is now, all rows in step.

Gradients come from `autograd.grad` in the images alone, so no weight's `.grad` is touched and a step costs two units,
not three. Nothing is judged here: `k` steps cost `k` forwards and `k` backwards, and one forward more where the attack
keeps its best point.
"""

from dataclasses import replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, BestState, Seen, State, Trials
from robustkit.primitives.rows import along, finite

from .diverged import Diverged
from .objectives import Climb, Network

_NUDGE = 1e-3  # TRADES, algorithm 1: standard deviation of the noise that its attack begins with
_NUDGES = 1 << 20  # a draw that no attack comes to


def crafted(network: Network, attack: Attack, x: Tensor, y: Tensor, key: Tensor, climb: Climb | None = None) -> Tensor:
    """`[B, *S]` the points that one trial per image ends with; of several restarts, each image's worst.

    That is the last point, or the best one of an attack that keeps it.

    Args:
        network: in whatever mode the attack shall meet it.
        attack: with its radius.
        x: `[B, *S]` in [0, 1].
        y: `[B]` true classes; always hard, however smooth the outer loss is.
        key: `[B]` noise streams.
        climb: what to climb in place of the attack's own loss.

    Raises:
        Diverged: a gradient is NaN or infinite.
    """
    best = _climbed(network, attack, x, y, key, climb)
    if attack.restarts == 1:
        return best
    most = _loss(network, attack, best, x, y, climb)
    for restart in range(1, attack.restarts):
        point = _climbed(network, attack, x, y, noise.keys(restart, key), climb)
        found = _loss(network, attack, point, x, y, climb)
        best, most = torch.where(along(found > most, x), point, best), torch.maximum(found, most)
    return best


def keys_of(seed: int, epoch: int, ids: Tensor) -> Tensor:
    """Noise streams of images in an epoch: they do not depend on batches, order or the number of processes."""
    return noise.keys(seed, torch.full_like(ids, epoch), ids)


def _climbed(network: Network, attack: Attack, x: Tensor, y: Tensor, key: Tensor, climb: Climb | None) -> Tensor:
    state = attack.init(_trials(x, y, key))
    if climb is not None and torch.equal(state.query, x):
        # The divergence from the clean prediction has no gradient at the clean image.
        start = attack.ball.project(x, x + _NUDGE * noise.normal(key, _NUDGES, x.shape[1:]).to(x))
        state = replace(state, query=start)
    while not bool(state.done.all()):
        state = attack.step(state, _seen(network, attack, state, climb))
    if not isinstance(state, BestState):
        return state.query.detach()
    # The last point was not asked yet, and may be better still.
    rose = _loss(network, attack, state.query, state.trial.x, state.trial.y, climb) > state.best_loss
    return torch.where(along(rose, state.query), state.query, state.best).detach()


def _trials(x: Tensor, y: Tensor, key: Tensor) -> Trials:
    nothing = torch.full_like(y, -1)
    return Trials(x, y, nothing, nothing, key)


@torch.no_grad()
def _loss(network: Network, attack: Attack, point: Tensor, x: Tensor, y: Tensor, climb: Climb | None) -> Tensor:
    logits = network(point)
    return attack.objective(logits, _trials(x, y, y)) if climb is None else climb(logits)


def _seen(network: Network, attack: Attack, state: State, climb: Climb | None) -> Seen:
    if attack.sees != "gradients":
        with torch.no_grad():
            logits = network(state.query)
            loss = attack.objective(logits, state.trial) if climb is None else climb(logits)
        return Seen(logits.argmax(1), logits, loss, logits.new_zeros(len(logits), 0))
    with torch.enable_grad():
        query = state.query.detach().requires_grad_(True)
        logits = network(query)
        loss = attack.objective(logits, state.trial) if climb is None else climb(logits)
        # The sum keeps rows apart; a mean would scale each gradient by its neighbours.
        (grad,) = torch.autograd.grad(loss.sum(), query)
    if not finite(grad):
        raise Diverged("The input gradient became NaN or infinite; lower lr, or clip the gradient.")
    return Seen(logits.argmax(1), logits.detach(), loss.detach(), grad)
