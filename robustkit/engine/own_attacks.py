"""Mistakes of an attack, mostly of the user's own, that would end in a riddle or never: each is one sentence."""

from collections.abc import Sequence

from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack, State
from robustkit.primitives.rows import rows_not_finite


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


def check_queries(attack: Attack, queries: Tensor, answers: Sequence[int], samples: Sequence[int]) -> None:
    """Check that an attack's queries are finite; called only where an answer or a last point is not.

    Args:
        attack: which made them.
        queries: `[n, *S]` points or parameters.
        answers: how many answers of its trial the attack had when it made each of them.
        samples: the images that they belong to.

    Raises:
        UserError: one is not finite; the sentence names the attack's function, the step and the image.
    """
    bad = rows_not_finite(queries)
    if not bad:
        return
    name, step, sample = type(attack).__name__, answers[bad[0]], samples[bad[0]]
    function = f"{name}.step, in step {step}," if step else f"{name}.init"
    # Scores are not checked at each step, because the host would have to wait for them.
    scores = ", or the model if its outputs there are NaN" if attack.sees == "logits" else ""
    raise UserError(
        f"{function} returned a query that is not finite (NaN or infinite) for image {sample}; mend the attack{scores}."
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
