"""Calls of an attack's functions. Mistakes, mostly in an attack of the user's own, that would end in a riddle, in a
false result or never: each is one sentence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack, Seen, State, Trials
from robustkit.primitives.rows import Rows, rows_not_finite, version


def begun(attack: Attack, trials: Trials) -> State:
    """The attack's state before the first query of these trials.

    Raises:
        UserError: `init` returned something that does not fit, or wrote into the trials.
    """
    versions = _versions(trials)
    like = None if attack.ball.renders else trials.x
    state = _checked(attack, attack.init(trials), "init", trials, like)
    _require_same(attack, "init", state.trial, trials)
    _require_unwritten(attack, "init", versions, trials)
    return state


def require_queries(attack: Attack, state: State) -> None:
    """Check that `init` ended no trial: each of the engine's makes one query before its first step.

    Raises:
        UserError: it did.
    """
    if bool(state.done.any()):
        raise UserError(
            f"{type(attack).__name__}.init must not end a trial (`done`); each makes one query, then `step`."
        )


def stepped(attack: Attack, state: State, seen: Seen) -> State:
    """The attack's state after one answer.

    Raises:
        UserError: `step` returned something that does not fit, or wrote into the state or the answer.
    """
    versions = _versions(state, seen)
    after = _checked(attack, attack.step(state, seen), "step", state.trial, state.query)
    _require_same(attack, "step", after.trial, state.trial)
    _require_unwritten(attack, "step", versions, state, seen)
    return after


def guessed(attack: Attack, state: State, steps: Tensor) -> State:
    """The states that the attack expects after so many answers `[B]`. Wrong ones cost time and change nothing.

    Raises:
        UserError: `guess` returned something that does not fit, or wrote into the state.
    """
    versions = _versions(state)
    after = _checked(attack, attack.guess(state, steps), "guess", state.trial, state.query)
    _require_unwritten(attack, "guess", versions, state)
    return after


def _checked(attack: Attack, state: object, function: str, trials: Trials, like: Tensor | None) -> State:
    """What a function returned, if it is a state of these trials whose queries have the shape and type of `like`."""
    name, count = f"{type(attack).__name__}.{function}", len(trials)
    if not isinstance(state, State):
        raise UserError(f"{name} must return a State, not {type(state).__name__}.")
    device = trials.y.device
    for field, value in state.tensors():
        tensor: object = value
        if not isinstance(tensor, Tensor) or not tensor.dim():
            kind = "a single number" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise UserError(f"{name}: `{field}` of its State must be a tensor of {count} rows, not {kind}.")
        if len(tensor) != count:
            raise UserError(f"{name} must return a State of {count} rows, not of {len(tensor)} in `{field}`.")
        if tensor.device != device:
            raise UserError(f"{name} must return a State on {device}, not `{field}` on {tensor.device}.")
        if tensor.layout != torch.strided:
            raise UserError(f"{name}: `{field}` of its State is not dense; return {field}.to_dense().")
        if tensor.requires_grad:
            raise UserError(f"{name}: `{field}` of its State requires a gradient; return {field}.detach().")
    _require_kinds(name, state, count, like)
    return state


def _require_kinds(name: str, state: State, count: int, like: Tensor | None) -> None:
    for field, value, dtype in (("done", state.done, torch.bool), ("queries", state.queries, torch.int64)):
        if value.dtype != dtype or value.dim() != 1:
            raise UserError(f"{name}: `{field}` of its State must be {_text([count], dtype)}, not {_like(value)}.")
    if like is not None and (state.query.shape != like.shape or state.query.dtype != like.dtype):
        raise UserError(
            f"{name} must leave the query's shape and type as they are: {_like(like)}, not {_like(state.query)}."
        )


def _require_same(attack: Attack, function: str, returned: Trials, given: Trials) -> None:
    """Check that an attack did not move the clean images, around which its points are projected."""
    if returned is given:
        return
    pairs = zip(given.tensors(), returned.tensors(), strict=True)
    for (field, before), (_, after) in pairs:
        if before is not after and not torch.equal(before, after):
            name = f"{type(attack).__name__}.{function}"
            raise UserError(f"{name} must leave `trial.{field}` of its State as it is; only robustkit sets it.")


def _versions(*given: Rows) -> list[int]:
    """How often each tensor was written into."""
    return [version(each) for rows in given for _, each in rows.tensors()]


def _require_unwritten(attack: Attack, function: str, before: list[int], *given: Rows) -> None:
    after = _versions(*given)
    if after != before:
        names = [name for rows in given for name, _ in rows.tensors()]
        first = next(name for name, *pair in zip(names, before, after, strict=True) if pair[0] != pair[1])
        raise UserError(
            f"{type(attack).__name__}.{function} writes into `{first}`, which it was given; make a new tensor, x + d "
            "in place of x.add_(d)."
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
        f"{function} returned a query that is not finite (NaN or infinite) for image {sample}; "
        f"correct the attack{scores}."
    )


def _like(value: Tensor) -> str:
    return _text(list(value.shape), value.dtype)


def _text(shape: list[int], dtype: torch.dtype) -> str:
    return f"{shape} of {str(dtype).removeprefix('torch.')}"


def endless(attack: Attack, queries: int) -> UserError:
    """The error of a trial that does not end."""
    name, declared = type(attack).__name__, attack.cost.forwards
    return UserError(
        f"{name} has not ended after {queries:,} queries of an image, and its cost declares {declared:,} for a trial; "
        "set `done` in step()."
    )
