"""APGD for L1: sparse steps whose sparsity adapts, in balls of radius 3 eps, then 2 eps, then eps.

Croce & Hein 2021, arXiv:2103.01208. Each stage begins at the best point of the previous one, projected onto its own
ball. A misclassified point is a success only if it lies in the ball of radius eps. The published stages take 30, 30 and
40 % of the steps; the second and the third query their start as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ball import Ball
from robustkit.primitives.norm_balls import project_l1
from robustkit.primitives.protocol import BestState, Seen, TrialCost, Trials, begin
from robustkit.primitives.rows import along

from ._stages import BallStage

_SHRINK, _LEAST = 1.5, 0.1  # a checkpoint divides the step size by 1.5, down to a tenth of its first value


@dataclass(frozen=True)
class SparseState(BestState):
    """The state of one trial (L1); the best point is that of the current stage."""

    # changes at every step
    best_grad: Tensor  # [B, *S] the gradient at the best point
    # changes at checkpoints
    step_size: Tensor  # [B] in units of the stage's radius
    share: Tensor  # [B] share of the values that a step changes
    changed: Tensor  # [B] number of values that differed from the clean image at the last checkpoint


def published(steps: int) -> list[BallStage]:
    """The paper's stages: 30 % of the steps, 30 % and the rest; the last one, with radius eps, is never empty."""
    early = steps * 3 // 10
    return [*([BallStage(3.0, early), BallStage(2.0, early)] if early else []), BallStage(1.0, steps - 2 * early)]


def sparse_cost(stages: Sequence[BallStage]) -> TrialCost:
    """Passes of one trial, with one more query for the start of each stage after the first."""
    queries = _queries(stages)
    return TrialCost(queries + 1, queries)


def sparse_begin(trials: Trials, ball: Ball, stages: Sequence[BallStage]) -> SparseState:
    """The state before the first query, a random point of the first stage's ball."""
    direction = noise.normal(trials.key, 0, trials.x.shape[1:]).to(trials.x)
    start = _projected(trials.x, trials.x + direction, _schedule(stages, trials.y * 0)[:, 0].to(trials.x) * ball.eps)
    return SparseState(
        **vars(begin(trials, start)), best=start, best_grad=torch.zeros_like(start), best_loss=_zeros(trials),
        step_size=_zeros(trials) + 1, share=_zeros(trials), changed=_zeros(trials),
    )  # fmt: skip


def sparse_step(state: SparseState, seen: Seen, ball: Ball, stages: Sequence[BallStage]) -> SparseState:
    """The state after one answer: best point, checkpoint, then a sparse step or the first point of the next stage."""
    x, queries = state.trial.x, state.queries + 1
    # The rows of the schedule are indexed by the number of earlier queries.
    radius, since, every, last = (_schedule(stages, state.queries)[:, column] for column in range(4))
    first = since == 0
    better = first | (seen.loss > state.best_loss)
    best = torch.where(along(better, x), state.query, state.best)
    best_grad = torch.where(along(better, x), seen.grad, state.best_grad)
    best_loss = torch.where(better, seen.loss, state.best_loss)

    values = x[0].numel()
    start_changed = (state.query != x).flatten(1).sum(1).to(x)
    share = torch.where(first, start_changed / values / _SHRINK, state.share)
    changed = torch.where(first, start_changed, state.changed)
    step_size = torch.where(first, torch.ones_like(state.step_size), state.step_size)

    check = ~first & (since % every == 0)
    now = (best != x).flatten(1).sum(1).to(x)
    sparser = now < 0.95 * changed
    reset = check & sparser
    share = torch.where(check, now / values / _SHRINK, share)
    checked_size = torch.where(sparser, torch.ones_like(step_size), (step_size / _SHRINK).clamp(min=_LEAST))
    step_size = torch.where(check, checked_size, step_size)
    changed = torch.where(check, now, changed)
    here = torch.where(along(reset, x), best, state.query)
    grad = torch.where(along(reset, x), best_grad, seen.grad)

    moved = here + along(step_size * radius.to(x) * ball.eps, x) * _sparse_sign(grad, share)
    query = _projected(x, moved, radius.to(x) * ball.eps)
    # In rows of `last` a stage ends: the next query is its best point, projected onto the smaller ball.
    if bool((last > 0).any()):  # saves the other queries a projection and changes no row's point
        smaller = _schedule(stages, queries)[:, 0].to(x) * ball.eps
        query = torch.where(along(last > 0, x), _projected(x, best, smaller), query)
    return SparseState(
        trial=state.trial, query=query, queries=queries, done=queries >= _queries(stages), best=best,
        best_grad=best_grad, best_loss=best_loss, step_size=step_size, share=share, changed=changed,
    )  # fmt: skip


def _schedule(stages: Sequence[BallStage], queries: Tensor) -> Tensor:
    """`[B, 4]`: radius in eps, queries since the stage began, checkpoint period, whether another stage comes next."""
    table = []
    for number, (radius, length) in enumerate(stages):
        final = number == len(stages) - 1
        # A stage queries its start and the point after each step; the last point of the trial is judged instead.
        table += [
            [radius, since, max(int(0.04 * length), 1), float(not final and since == length)]
            for since in range(length + (not final))
        ]
    rows = torch.tensor(table, dtype=torch.float32, device=queries.device)
    return rows.index_select(0, queries.clamp(max=len(table) - 1))


def _queries(stages: Sequence[BallStage]) -> int:
    return sum(stage.steps for stage in stages) + len(stages) - 1


def _sparse_sign(grad: Tensor, share: Tensor) -> Tensor:
    """Signs of the largest `share` of the gradient's values, divided by their number: a step of L1 length 1."""
    size = grad.flatten(1).abs()
    rank = ((1 - share) * size.shape[1]).clamp(0, size.shape[1] - 1).long()
    least = size.sort(dim=1).values.gather(1, rank.unsqueeze(1))
    sign = grad.flatten(1).sign() * (size >= least)
    return (sign / sign.abs().sum(1, keepdim=True).clamp(min=1)).reshape(grad.shape)


def _projected(x: Tensor, point: Tensor, radius: Tensor) -> Tensor:
    return x + project_l1(point - x, x, radius)


def _zeros(trials: Trials) -> Tensor:
    return torch.zeros(len(trials), device=trials.x.device, dtype=trials.x.dtype)
