"""Bandits: improves one estimate of the gradient during the whole attack, on a coarse grid, by two queries at a time.

Ilyas, Engstrom & Madry 2019, arXiv:1807.07978, algorithms 1 to 3: the earlier estimate is the time-dependent prior, the
grid the data-dependent one. Ours differs: differences of the loss are divided by their mean size so far, so that the
scale of the logits does not matter; the loss is the margin; the current point is queried once after several updates,
where the authors' code queries it after each and does not count that.
Bad at: small images, for whose gradient the grid is too coarse: there Square breaks more.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.best import begin_best, best
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.queries import ScoreAttack
from robustkit.primitives.rows import along

from .._planes import plane

_FEWEST = 8  # fewest cells along each side: on an image of 8 x 8, a quarter of each side would be only 2 x 2 cells
_MEMORY = 0.9  # share of the old value in the mean squared difference


@dataclass(frozen=True)
class BanditState(BestState):
    """The state of one trial."""

    point: Tensor  # [B, *S] the iterate
    prior: Tensor  # [B, C, h, w] the estimate on the grid; in Linf its hyperbolic tangent is used
    ahead: Tensor  # [B] the loss at the previous query: after the first side, the loss there
    size: Tensor  # [B] decaying mean of the squared differences between the two sides; 0 before the first one


@dataclass(frozen=True)
class Bandits(ScoreAttack):
    """Bandits with priors over time and data, in Linf or L2.

    Args:
        queries: forward passes per trial, at least 2.
        cells: cells along each side of the grid, as a share of the side of the image; at least 8.
        estimates: updates of the direction between two queries of the point itself; each takes two queries.
        exploration: standard deviation of the noise that is added to the direction and subtracted from it.
        prior_step: factor of the noise by which a difference of mean size moves the direction.
        spread: Euclidean distance of the queries from the point, in units of pixels that lie in [0, 1].
        step_size: length of a step, in units of eps.
    """

    _: KW_ONLY
    cells: float = 0.25
    estimates: int = 5
    exploration: float = 0.1
    prior_step: float = 0.2
    spread: float = 0.1
    step_size: float = 0.2

    norms = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share("cells")
        self.at_least(1, "estimates")
        self.positive("exploration", "prior_step", "spread", "step_size")

    def init(self, trials: Trials) -> BanditState:
        start = begin_best(trials, trials.x)
        channels, *sides = plane(trials.x).shape[1:]
        grid = [max(round(self.cells * side), min(side, _FEWEST)) for side in sides]
        prior, zero = trials.x.new_zeros(len(trials), channels, *grid), torch.zeros_like(start.best_loss)
        return BanditState(**vars(start), point=trials.x, prior=prior, ahead=zero, size=zero)

    def step(self, state: State, seen: Seen) -> BanditState:
        assert isinstance(state, BanditState)
        turn = state.queries % (2 * self.estimates + 1)
        now, back = best(state, seen, looked_at=turn == 0), (turn > 0) & (turn % 2 == 0)
        prior, point, size = state.prior, state.point, state.size
        if bool(back.any()):  # saves time and changes no row's value
            difference = state.ahead - seen.loss
            square = difference.square()
            size = torch.where(back, torch.where(size > 0, _MEMORY * size + (1 - _MEMORY) * square, square), size)
            strength = difference / size.sqrt().clamp(min=torch.finfo(size.dtype).tiny)
            moved = prior + along(self.prior_step * strength, prior) * self._noise(state, state.queries - 1)
            prior = torch.where(along(back, prior), moved, prior)
            direction = self._spread_out(state, prior)
            climbed = self.ball.climb(state.trial.x, point, direction, self.step_size * self.ball.eps)
            point = torch.where(along(back, point), climbed, point)
        queries = state.queries + 1
        state = BanditState(
            state.trial, state.query, queries, queries >= self.queries - 1, now.point, now.loss, point, prior,
            seen.loss, size,
        )  # fmt: skip
        return BanditState(**{**vars(state), "query": self._query(state)})

    def _query(self, state: BanditState) -> Tensor:
        """The point itself, or a point a little way from it along the direction plus or minus noise."""
        turn = state.queries % (2 * self.estimates + 1)
        side = torch.where(turn % 2 == 1, 1.0, -1.0).to(state.point)
        draw = state.queries - (turn % 2 == 0).long()
        noisy = state.prior + along(self.exploration * side, state.prior) * self._noise(state, draw)
        direction = self._spread_out(state, noisy)
        length = direction.flatten(1).norm(dim=1).clamp(min=1e-12)
        query = (state.point + direction * along(self.spread / length, direction)).clamp(0, 1)
        return torch.where(along(turn == 0, query), state.point, query)

    def _noise(self, state: BanditState, draw: Tensor) -> Tensor:
        return noise.normal(state.trial.key, draw, state.prior.shape[1:]).to(state.prior)

    def _spread_out(self, state: BanditState, prior: Tensor) -> Tensor:
        """`[B, *S]` the direction for every pixel, which takes the value of its cell."""
        # The authors' exponentiated gradient steps in [-1, 1] equal plain steps followed by a hyperbolic tangent.
        values = prior.tanh() if self.ball.norm == "Linf" else prior
        height, width = plane(state.trial.x).shape[2:]
        rows, columns = (
            torch.arange(side, device=values.device) * cells // side
            for side, cells in zip((height, width), values.shape[2:], strict=True)
        )
        return values[:, :, rows][:, :, :, columns].reshape(state.point.shape)
