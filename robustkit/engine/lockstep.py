"""Run one trial per row with all rows in step, until the last row is done.

The scheduler gives the slot of a finished trial to the next one and judges every claim of success. A training needs
neither: it has as many trials as images, and it learns from the points whether or not they are adversarial.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from robustkit.engine.own_attacks import stepped
from robustkit.primitives.protocol import Attack, BestState, Seen, State
from robustkit.primitives.rows import along


def run_in_lockstep(attack: Attack, state: State, answer: Callable[[State], Seen]) -> State:
    """The state after the last step of the slowest row; nothing is judged.

    Args:
        attack: whose `step` is called.
        state: as `attack.init` returns it.
        answer: queries the model at `state.query`.
    """
    while not bool(state.done.all()):
        state = stepped(attack, state, answer(state))
    return state


def best_points(state: State, objective: Callable[[Tensor], Tensor]) -> Tensor:
    """`[B, *S]` the best point of each row if the attack keeps one, else its last point.

    Args:
        state: after the last step.
        objective: `[B]` what the attack maximizes, at points `[B, *S]`.
    """
    if not isinstance(state, BestState):
        return state.query.detach()
    # The last point was never queried during the run, and it may be better still.
    improved = objective(state.query) > state.best_loss
    return torch.where(along(improved, state.query), state.query, state.best).detach()
