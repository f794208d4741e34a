"""Mistakes of an attack of the user's own that would end in a riddle or never: each is one sentence."""

from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack, State

_SLACK = 10  # queries beyond twice the declared cost, after which a trial is taken to have no end


def checked_state(attack: Attack, state: object, function: str, count: int, shape: Tensor | None = None) -> State:
    """What `init` or `step` returned, if it is a state that fits.

    Args:
        attack: whose function returned it.
        state: what it returned.
        function: "init" or "step".
        count: rows that it must have.
        shape: a query whose shape and type its queries must have; None where they are not known.

    Raises:
        UserError: it is no state, has another number of rows, or its queries have another shape or type.
    """
    name = f"{type(attack).__name__}.{function}"
    if not isinstance(state, State):
        raise UserError(f"{name} must return a State, not {type(state).__name__}.")
    rows = {len(state.query), len(state.queries), len(state.done)}
    if rows != {count}:
        raise UserError(f"{name} must return a State of {count} rows, not of {sorted(rows)[-1]}.")
    if shape is not None and (state.query.shape != shape.shape or state.query.dtype != shape.dtype):
        raise UserError(
            f"{name} must leave the query's shape and type as they are: {_text(shape)}, not {_text(state.query)}."
        )
    return state


def _text(query: Tensor) -> str:
    return f"{list(query.shape)} of {str(query.dtype).removeprefix('torch.')}"


def most_queries(attack: Attack) -> int:
    """How many queries of an image, in all trials that aim at one class, are twice what the attack declares."""
    radii = attack.radii if attack.bisects else 1
    return 2 * attack.restarts * radii * attack.cost.forwards + _SLACK


def endless(attack: Attack, queries: int) -> UserError:
    """The error of a trial that does not end."""
    name, declared = type(attack).__name__, attack.cost.forwards
    return UserError(
        f"{name} has not ended after {queries:,} queries of an image, and its cost declares {declared:,} for a trial; "
        "set `done` in step()."
    )
