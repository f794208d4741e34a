"""Checks of an attack's states alone: made-up answers take the place of a model."""

import copy
from dataclasses import replace

import torch
from torch import Tensor

from robustkit.primitives.nearest import NearestState
from robustkit.primitives.perceptual import PerceptualAttack, PerceptualSeen
from robustkit.primitives.protocol import (
    Attack,
    BestState,
    ClasswiseAttack,
    FeatureAttack,
    FeatureSeen,
    MultiGradientAttack,
    MultiGradientSeen,
    Seen,
    State,
    Trials,
)
from robustkit.primitives.rows import Rows, along

from .doubles import PixelFeatures
from .problems import images
from .subject import GREY, AttackUnderTest, confirm

_CLASSES = 4
_FEATURES = (2, 3)  # shape of a layer's output where there is no model
_KEYS_APART = 1_000_003  # between the noise keys of two trials


def a_trial_does_not_depend_on_its_neighbours(
    subject: AttackUnderTest, shape: tuple[int, ...] = GREY, key: int = 7
) -> None:
    """A row of a batch and the same row among others have the same states."""
    attack = without_model(subject)
    together = attack.init(trials(images(8, *shape), key))
    some = torch.tensor([5, 0, 3], device="cpu")
    few = together.take(some)
    for turn in range(attack.cost.forwards):
        together = attack.step(together, made_up(together, turn, attack))
        few = attack.step(few, made_up(few, turn, attack))
        same = all(torch.equal(*pair) for pair in zip(flat(together.take(some)), flat(few), strict=True))
        confirm(same, f"step {turn} gives a row another state among other rows")


def step_writes_nothing_in_place(subject: AttackUnderTest, shape: tuple[int, ...] = GREY, key: int = 7) -> None:
    """State and answer are the same after a step."""
    attack = without_model(subject)
    state = attack.init(trials(images(3, *shape), key))
    for turn in range(4):
        seen = made_up(state, turn, attack)
        before = copy.deepcopy([*flat(state), *flat(seen)])
        after = attack.step(state, seen)
        same = all(torch.equal(*pair) for pair in zip(before, [*flat(state), *flat(seen)], strict=True))
        confirm(same, "step() changes the state or the answer that it is given")
        state = after


def each_step_counts_one_query(subject: AttackUnderTest, shape: tuple[int, ...] = GREY, key: int = 7) -> None:
    """`queries` is how many answers a trial has had: results say with it after how many queries an image broke."""
    attack = without_model(subject)
    state = attack.init(trials(images(3, *shape), key))
    confirm((state.queries == 0).all(), "init() returns a state that has counted queries")
    for turn in range(3):
        after, live = attack.step(state, made_up(state, turn, attack)), ~state.done
        confirm((after.queries == state.queries + 1)[live].all(), "a step does not add 1 to `queries`")
        state = after


def an_idle_row_can_be_stepped_for_ever(subject: AttackUnderTest, shape: tuple[int, ...] = GREY, key: int = 7) -> None:
    """A batch's row without a trial repeats an old one, whose counters pass the budget."""
    attack = without_model(subject)
    state = attack.init(trials(images(2, *shape), key))
    for turn in range(2 * attack.cost.forwards + 10):
        state = attack.step(state, made_up(state, turn, attack))
    confirm(state.done.all(), "a row is not done after all queries of `cost`")
    confirm(state.query.isfinite().all(), "a row that is done gets a query that is not finite")


def it_keeps_its_best_point_if_it_declares_so(
    subject: AttackUnderTest, shape: tuple[int, ...] = GREY, key: int = 7
) -> None:
    """`keeps_best` and the type of the state agree."""
    attack = without_model(subject)
    state = attack.init(trials(images(3, *shape), key))
    for turn in range(3):
        state = attack.step(state, made_up(state, turn, attack))
    confirm(isinstance(state, BestState) == attack.keeps_best, "keeps_best must be True exactly with a BestState")


def it_keeps_the_nearest_error_if_it_declares_so(
    subject: AttackUnderTest, shape: tuple[int, ...] = GREY, key: int = 7
) -> None:
    """`seeks_nearest` and the type of the state agree; no error that was shown is nearer than the one that is kept."""
    attack = without_model(subject)
    state = attack.init(trials(images(4, *shape), key))
    confirm(isinstance(state, NearestState) == attack.seeks_nearest, "seeks_nearest and a NearestState go together")
    nearest = torch.full((4,), torch.inf, dtype=torch.float64, device="cpu")
    for turn in range(attack.cost.forwards if isinstance(state, NearestState) else 0):
        # The first row never sees an error, the others at turns of their own.
        label = ((torch.arange(4, device="cpu") * (turn + 2)) % 5 > 1).long()
        live, shown = ~state.done, attack.ball.distance(state.trial.x, state.query)
        nearest = torch.where(live & (label == 1), torch.minimum(nearest, shown), nearest)
        state = attack.step(state, replace(made_up(state, turn, attack), label=label))
        assert isinstance(state, NearestState)
        confirm(torch.equal(state.distance[live], nearest[live]), "a nearer error was shown than the one that is kept")
        ended = live & state.done & nearest.isfinite()
        confirm(
            torch.equal(attack.ball.distance(state.trial.x, state.query)[ended], nearest[ended]),
            "the last query of a trial is not its nearest error",
        )


def gradients_that_it_does_not_read_change_nothing(
    subject: AttackUnderTest, shape: tuple[int, ...] = GREY, key: int = 7
) -> None:
    """`gradients_read` says of every query how many gradients the next state depends on."""
    attack = without_model(subject)
    if attack.reads_all_gradients:
        return
    state = attack.init(trials(images(4, *shape), key))
    for turn in range(attack.cost.forwards):
        seen = made_up(state, turn, attack)
        after = attack.step(state, seen)
        other = attack.step(state, _with_unread_gradients(seen, attack.gradients_read(state)))
        same = all(torch.equal(*pair) for pair in zip(flat(after), flat(other), strict=True))
        confirm(same, "a gradient is read of which gradients_read says that it is not")
        state = after


def _with_unread_gradients(seen: Seen, read: Tensor) -> Seen:
    """The answer with ones in place of all but the first `read` `[B]` gradients of each row."""
    if not isinstance(seen, MultiGradientSeen):
        return replace(seen, grad=torch.where(along(read > 0, seen.grad), seen.grad, 1))
    column = torch.arange(seen.grads.shape[1], device="cpu")
    kept = (column < read.unsqueeze(1)).reshape(*seen.grads.shape[:2], *[1] * (seen.grads.dim() - 2))
    grads = torch.where(kept, seen.grads, 1)
    return replace(seen, grad=grads[:, 0], grads=grads)


def its_objective_depends_on_the_target(subject: AttackUnderTest) -> None:
    """An attack that sees more than labels aims at the target; one on features may do so elsewhere."""
    attack = without_model(subject)
    if attack.sees == "labels" or isinstance(attack, FeatureAttack):
        return
    logits = (torch.arange(3 * _CLASSES, device="cpu").reshape(3, _CLASSES) * 0.7).sin()
    values = [_objective(attack, logits, target) for target in (1, 2)]
    confirm(not torch.equal(*values), "the objective is the same for every target class")


def _objective(attack: Attack, logits: Tensor, target: int) -> Tensor:
    """The objectives of trials that must reach a class."""
    plain = trials(images(len(logits), *GREY))
    aimed = replace(plain, loss_target=plain.y + target, target=plain.y + target)
    if isinstance(attack, MultiGradientAttack):
        return attack.objectives(logits, aimed)
    return attack.objective(logits, aimed)


def states_depend_on_the_seed(subject: AttackUnderTest) -> bool:
    """Whether two noise keys lead to different queries."""
    attack = without_model(subject)
    states = [attack.init(trials(images(4, *GREY), key)) for key in (7, 8)]
    for turn in range(4):
        if not torch.equal(states[0].query, states[1].query):
            return True
        states = [attack.step(state, made_up(state, turn, attack)) for state in states]
    return False


def without_model(subject: AttackUnderTest) -> Attack:
    """The attack for made-up answers."""
    attack = subject.made()
    if isinstance(attack, ClasswiseAttack):
        return attack.of(_CLASSES)
    if isinstance(attack, PerceptualAttack):
        return attack.with_features(PixelFeatures(torch.Size(_FEATURES).numel()))
    return attack.at(_FEATURES) if isinstance(attack, FeatureAttack) else attack


def trials(x: Tensor, key: int = 7) -> Trials:
    """Trials with distinct noise keys that aim at no class."""
    none = torch.full((len(x),), -1, device="cpu")
    zero = torch.zeros_like(none)
    # The first restart may begin at the image; the second one draws noise, if the attack has any.
    return Trials(x, zero, none, none, torch.arange(len(x), device="cpu") * _KEYS_APART + key, zero + 1)


def made_up(state: State, turn: int, attack: Attack) -> Seen:
    """Answers that depend on the trial alone: not on its place in the batch, nor on the seed."""
    count, shape = len(state), state.query.shape
    wave = ((state.trial.key // _KEYS_APART).double() * 0.37 + turn).reshape(-1, *[1] * (len(shape) - 1))
    position = torch.arange(state.query[0].numel(), device="cpu").reshape(1, *shape[1:])
    grad = (wave + position).sin().float() if attack.sees == "gradients" else torch.zeros(count, 0, device="cpu")
    loss = wave.flatten().mul(5).cos().mul(10).float() if attack.sees != "labels" else torch.zeros(count, device="cpu")
    label = (wave.flatten().mul(7).sin() > 0).long()  # half of the answers are errors
    seen = Seen(label, torch.zeros(count, _CLASSES, device="cpu"), loss, grad)
    if isinstance(attack, MultiGradientAttack):
        losses = attack.objectives(
            (wave.reshape(-1, 1) + torch.arange(_CLASSES, device="cpu")).sin().float(), state.trial
        )
        grads = torch.stack([grad.roll(place, -1) for place in range(losses.shape[1])], 1)
        return MultiGradientSeen(seen.label, seen.logits, losses[:, 0], grads[:, 0], losses, grads)
    if not isinstance(attack, (FeatureAttack, PerceptualAttack)):
        return seen
    features = (wave.reshape(-1, 1, 1) * 3 + torch.arange(6, device="cpu").reshape(_FEATURES)).sin().float()
    if isinstance(attack, PerceptualAttack):
        return PerceptualSeen(**vars(seen), features=features.flatten(1))
    return FeatureSeen(**vars(seen), features=features, feature_grad=features.flip(1))


def flat(rows: Rows) -> list[Tensor]:
    """All tensors of a struct, also of nested ones."""
    return [each for _, each in rows.tensors()]
