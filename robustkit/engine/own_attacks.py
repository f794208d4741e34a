"""Mistakes of an attack of the user's own that would end in a riddle or never: each is one sentence."""

from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack, State


def misfit(attack: Attack, state: object, function: str, count: int, like: Tensor | None) -> UserError:
    """The error of a function that returned no state, or one that does not fit (`State.fits`).

    Args:
        attack: whose function returned it.
        state: what it returned.
        function: "init" or "step".
        count: rows that it must have.
        like: a query whose shape and type its queries must have; None where they are not known.
    """
    name = f"{type(attack).__name__}.{function}"
    if not isinstance(state, State):
        return UserError(f"{name} must return a State, not {type(state).__name__}.")
    rows = {len(state.query), len(state.queries), len(state.done)}
    if rows != {count} or like is None:
        return UserError(f"{name} must return a State of {count} rows, not of {sorted(rows)[-1]}.")
    return UserError(
        f"{name} must leave the query's shape and type as they are: {_text(like)}, not {_text(state.query)}."
    )


def _text(query: Tensor) -> str:
    return f"{list(query.shape)} of {str(query.dtype).removeprefix('torch.')}"


def endless(attack: Attack, queries: int) -> UserError:
    """The error of a trial that does not end."""
    name, declared = type(attack).__name__, attack.cost.forwards
    return UserError(
        f"{name} has not ended after {queries:,} queries of an image, and its cost declares {declared:,} for a trial; "
        "set `done` in step()."
    )
