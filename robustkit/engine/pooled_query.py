"""One batch of queries for several masks: each row with its own mask, answered as it is in a batch of that mask alone.

The network sees whole images. What an attack gets back are the logits, its own objective, and of the gradient the
values inside its mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.oracle import Plain
from robustkit.classifier.read_gradients import answered_by_count, gradients_read
from robustkit.classifier.session import Session
from robustkit.engine.ahead import GuessedBatch
from robustkit.primitives.mask import Mask
from robustkit.primitives.perceptual import PerceptualAttack
from robustkit.primitives.protocol import (
    Attack,
    FeatureAttack,
    HookedAttack,
    MaskedTrials,
    MultiGradientSeen,
    Seen,
    State,
    Trials,
)
from robustkit.primitives.rows import Rows, numbers_on, padded


class BatchOfQueries(NamedTuple):
    """What a scheduler asks the model."""

    state: State
    rows: list[int]  # whose answers count; the others fill the batch
    guessed: GuessedBatch | None


class MaskQueries(NamedTuple):
    """Queries of one mask."""

    attack: Attack  # under that mask
    state: State  # [B]
    rows: list[int]  # that are in flight; the others are not asked, and get the answer of the first of these


@dataclass(frozen=True)
class PooledState(State):
    """Whole images to be asked about; of other fields of their states nothing."""

    part: Tensor  # [B] int64 number of the row's mask
    row: Tensor  # [B] int64 number of the row in the state of that mask


def can_pool(session: Session, attack: Attack) -> bool:
    """Whether a model can be asked by rows of different masks at once: not by an attack that hooks its layers."""
    special = isinstance(attack, (HookedAttack, FeatureAttack, PerceptualAttack))
    return isinstance(session.oracle, Plain) and not special


def answered_together(session: Session, parts: Sequence[MaskQueries], slots: int) -> list[Seen]:
    """What the model shows to the queries of each mask, all in one batch."""
    oracle = session.oracle
    assert isinstance(oracle, Plain)
    device = parts[0].state.query.device
    pooled = Rows.cat([_pooled(number, part) for number, part in enumerate(parts)])
    attack = replace(parts[0].attack, mask=None)

    def objective(logits: Tensor, state: State) -> Tensor:
        assert isinstance(state, PooledState)
        return _objective(parts, logits, state)

    def ask(rows: Tensor, most: int | None) -> Seen:
        size = session.sizes.fit(len(rows), max(slots, len(rows)), attack.sees)
        seen = oracle.query(attack, pooled.take(padded(rows, size)), objective, most=most)
        return seen.take(torch.arange(len(rows), device=device))

    everything = torch.arange(len(pooled), device=device)
    seen = ask(everything, None) if attack.reads_all_gradients else answered_by_count(_read(parts), ask, pooled.query)
    answers, first = [], 0
    for part in parts:
        at = [first] * len(part.state)
        for place, row in enumerate(part.rows):
            at[row] = first + place
        answers.append(_inside(part.attack.mask, seen.take(numbers_on(device, at))))
        first += len(part.rows)
    return answers


def _read(parts: Sequence[MaskQueries]) -> Tensor:
    """`[B]` how many gradients of each row in flight are read."""
    return torch.cat([gradients_read(part.attack, part.state)[part.rows] for part in parts])


def _pooled(number: int, part: MaskQueries) -> PooledState:
    rows = numbers_on(part.state.query.device, part.rows)
    state = part.state.take(rows)
    trial = state.trial
    assert isinstance(trial, MaskedTrials)
    whole = Trials(trial.whole, trial.y, trial.loss_target, trial.target, trial.key, trial.restart)
    points = part.attack.whole(trial, state.query)
    return PooledState(whole, points, state.queries, state.done, torch.full_like(rows, number), rows)


def _objective(parts: Sequence[MaskQueries], logits: Tensor, state: PooledState) -> Tensor:
    """`[B]` each row's objective, from the attack and the state of its own mask."""
    values, places = [], []
    for number in sorted(set(state.part.tolist())):
        here = (state.part == number).nonzero().flatten()
        # Sums over a row take another path in a batch of one, so a lone row goes together with a copy.
        several = here if len(here) > 1 else here.repeat(2)
        attack, own, _ = parts[number]
        value = attack.objective_at(logits.index_select(0, several), own.take(state.row.index_select(0, several)))
        values.append(value[: len(here)])
        places.append(here)
    return torch.cat(values).index_select(0, torch.cat(places).argsort())


def _inside(mask: Mask | None, seen: Seen) -> Seen:
    """The answer, with the gradients inside a mask."""
    assert mask is not None
    if not seen.backwards:
        return seen
    if not isinstance(seen, MultiGradientSeen):
        return replace(seen, grad=mask.inside(seen.grad))
    grads = mask.inside(seen.grads.flatten(0, 1))
    grads = grads.reshape(*seen.grads.shape[:2], *grads.shape[1:])
    return replace(seen, grad=grads[:, 0], grads=grads)
