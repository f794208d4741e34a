"""The base class of attacks: frozen hyper-parameters, and two pure functions on a state that holds the next query.

    init(trials) -> state            writes the first query
    (the engine queries the model)   logits, per-row loss, input gradient
    step(state, seen) -> state       pure, row by row: updates, marks rows done, writes the next query

An attack never calls a model, never loops over steps and never draws from a global generator. Restarts and target
classes are further trials of the queue, not loops in attacks. Images lie in [0, 1] here, whatever the bounds of the
model are.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import Self

from robustkit import limits
from robustkit.errors import UserError
from robustkit.primitives.ball import NORMS, Ball, NormName
from robustkit.primitives.checked_fields import CheckedFields
from robustkit.primitives.mask import Mask
from robustkit.primitives.rows import Rows
from robustkit.primitives.threat import ball, norm_name

Sees = Literal["labels", "logits", "gradients"]


@dataclass(frozen=True)
class Trials(Rows):
    """One trial per row: an image with its label, target classes and noise."""

    x: Tensor  # [B, *S] clean image in [0, 1]
    y: Tensor  # [B] int64 true class
    loss_target: Tensor  # [B] int64 class the loss aims at, -1 for none
    target: Tensor  # [B] int64 class that must be reached, -1 where any class but y will do
    key: Tensor  # [B] int64 noise stream of (seed, attack, image, restart, loss_target)
    restart: Tensor  # [B] int64 number of the restart, from 0


@dataclass(frozen=True)
class MaskedTrials(Trials):
    """Trials on a part of each image: `x`, and all that an attack makes of it, has the values inside the mask."""

    whole: Tensor  # [B, *S] clean image in [0, 1]


@dataclass(frozen=True)
class State(Rows):
    """The part of an attack's state that the engine reads.

    The engine may overwrite the tensors of a state, so an attack keeps no reference to them elsewhere.
    """

    trial: Trials
    query: Tensor  # [B, *S] the point of the next query, or the parameters [B, *P] that `ball` renders one of; once
    # done, the point to be judged
    queries: Tensor  # [B] int64 queries so far: schedules read this, never a loop index
    done: Tensor  # [B] bool, budget spent


@dataclass(frozen=True)
class BestState(State):
    """The state of an attack that returns to its best point so far.

    Only points inside the ball count.
    """

    best: Tensor  # [B, *S] the queried point with the highest objective
    best_loss: Tensor  # [B] the objective there


@dataclass(frozen=True)
class Seen(Rows):
    """The model's answer at `state.query`."""

    label: Tensor  # [B] int64 predicted class
    logits: Tensor  # [B, K]; [B, 0] for an attack that may see labels only
    loss: Tensor  # [B] the attack's objective; zero for an attack that may see labels only
    grad: Tensor  # [B, *S] its gradient in the query; [B, 0] unless the attack may see gradients

    @property
    def all_grads(self) -> Tensor:
        """Every gradient that was computed for the answer."""
        return self.grad

    @property
    def backwards(self) -> int:
        """How many gradients of each row were computed."""
        return int(self.grad.shape[1:].numel() > 0)


@dataclass(frozen=True)
class MultiGradientSeen(Seen):
    """The model's answer to an attack on several objectives; `loss` and `grad` are those of the first one."""

    losses: Tensor  # [B, C] the objectives
    grads: Tensor  # [B, C, *S] their gradients in the query

    @property
    def all_grads(self) -> Tensor:
        return self.grads

    @property
    def backwards(self) -> int:
        return self.grads.shape[1]


@dataclass(frozen=True)
class FeatureSeen(Seen):
    """The model's answer to an attack on the output of a layer."""

    features: Tensor  # [B, *F] the layer's output at the query
    feature_grad: Tensor  # [B, *F] the objective's gradient in it


@dataclass(frozen=True)
class TrialCost:
    """The most passes that one trial can need.

    A misclassification by the network that is queried (folded, compiled or in bf16) adds one forward if the
    unmodified model does not confirm it; one by no more than rounding is asked for again in batches of other sizes.
    """

    forwards: int
    backwards: int

    def __add__(self, other: "TrialCost") -> "TrialCost":
        return TrialCost(self.forwards + other.forwards, self.backwards + other.backwards)


@dataclass(frozen=True)
class Attack(CheckedFields, ABC):
    """Base of all attacks: the threat model and the number of trials per image.

    Args:
        eps: radius, in units of pixels that lie in [0, 1]; a text such as "8/255" is exact.
        norm: "Linf", "L2", "L1" or "L0", or another threat that the attack knows, such as "patch" or "rotation".
        restarts: trials per image and target, at least 1; the first success ends the image.
        targets: number of the likeliest wrong classes that are target of one trial each; 0 for untargeted trials.
        radii: how many radii are tried for each image without a radius (eps="minimum"), by bisection; attacks that look
            for the nearest error themselves need none.
        mask: the pixels that may change, of all images alike; None for all.

    Raises:
        UserError: a value is out of range; the sentence names it.
    """

    eps: float | str
    norm: str = "Linf"
    _: KW_ONLY
    restarts: int = 1
    targets: int = 0
    radii: int = 10
    mask: Mask | None = None

    sees: ClassVar[Sees] = "gradients"
    norms: ClassVar[tuple[NormName, ...]] = NORMS
    keeps_best: ClassVar[bool] = False  # whether its state is a `BestState`
    in_full_precision: ClassVar[bool] = False  # whether it is answered without bf16, whatever the search runs in
    guesses: ClassVar[bool] = False  # whether `guess` is right more often than not
    reads_all_gradients: ClassVar[bool] = True  # whether it reads every gradient at every query; else `gradients_read`
    made_elsewhere: ClassVar[bool] = False  # whether it only judges points, so that how many it breaks says no more
    # Whether its state is a `NearestState`: without a radius it needs no bisection.
    seeks_nearest: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.require_declared()
        _ = self.ball
        norms: object = self.norms
        if isinstance(norms, str):
            raise UserError(f"{type(self).__name__}.norms must be a tuple of norms, not the text {norms!r}.")
        if self.ball.norm not in self.norms:
            that = "that" if len(self.norms) == 1 else "one of these"
            fix = f"; for {self.norm} take {self.ball.attacks}" if self.ball.attacks else f", so set the norm to {that}"
            raise UserError(f"{type(self).__name__} has no {self.norm} form; it has {', '.join(self.norms)}{fix}.")
        if self.sees not in get_args(Sees):
            words = ", ".join(get_args(Sees))
            raise UserError(f"{type(self).__name__}.sees must be one of {words}, not {self.sees!r}.")
        if self.mask is not None:
            self._check_mask()
        for each in fields(self):
            if isinstance(each.default, bool) and not isinstance(getattr(self, each.name), bool):
                value = getattr(self, each.name)
                raise UserError(f"{type(self).__name__}: {each.name} must be true or false, not {value!r}.")
        self.at_least(1, "restarts")
        self.at_least(0, "targets")
        limits.require_at_most(f"{type(self).__name__}: restarts", self.restarts, limits.RESTARTS)
        limits.require_at_most(f"{type(self).__name__}: targets", self.targets, limits.CLASSES)
        self.at_least(1, "radii")
        limits.require_at_most(f"{type(self).__name__}: radii", self.radii, limits.RADII)

    @cached_property
    def ball(self) -> Ball:
        """The threat model: distances, projections, steepest directions and random points."""
        return ball(norm_name(self.norm), self.eps)

    @property
    def unlimited(self) -> bool:
        """Whether there is no radius: the result is how far away the nearest error is."""
        return math.isinf(self.ball.eps)

    @property
    def bisects(self) -> bool:
        """Whether the nearest error is looked for by bisection: there is no radius, and the attack needs one."""
        return self.unlimited and not self.seeks_nearest

    def check_images(self, shape: tuple[int, ...]) -> None:
        """Check that inputs of shape `S` have this threat model.

        Raises:
            UserError: they do not; the sentence says why.
        """
        if self.ball.norm not in NORMS:  # a norm has a ball around every input
            self.ball.check(shape)
        if self.mask is not None:
            self.mask.check(shape)

    def whole(self, trials: Trials, points: Tensor) -> Tensor:
        """`[B, *S]` the images of an attack's points: under a mask, those values in their place in the clean images."""
        if self.mask is None:
            return points
        assert isinstance(trials, MaskedTrials)
        return self.mask.placed(trials.whole, points)

    def _check_mask(self) -> None:
        name = type(self).__name__
        if not isinstance(self.mask, Mask):
            raise UserError(f"{name}: mask is not {type(self.mask).__name__}; give robustkit.load_mask(...).")
        if self.ball.norm not in NORMS:
            norm = self.ball.norm
            why = f"a {norm} has its own place" if norm in ("patch", "frame") else f"{norm} changes the whole image"
            raise UserError(f"{name}: {why}; leave the mask out, or take Linf, L2, L1 or L0.")

    @property
    def trials(self) -> int:
        """The largest number of trials of one image."""
        return self.restarts * max(self.targets, 1) * (self.radii if self.bisects else 1)

    @property
    @abstractmethod
    def cost(self) -> TrialCost:
        """The most passes of one trial, including the forward that judges its last point."""

    @abstractmethod
    def init(self, trials: Trials) -> State:
        """The state before the first query."""

    @abstractmethod
    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B]` the value that the attack maximises, from logits `[B, K]`."""

    def objective_at(self, logits: Tensor, state: State) -> Tensor:
        """`[B]` the value that the attack maximises at one query; another than `objective` in a phase of its own."""
        return self.objective(logits, state.trial)

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the attack's results mislead, one sentence for each cause that was noticed."""
        return ()

    def with_built_in_loss(self) -> Self:
        """The same attack with a loss of robustkit in place of the user's own."""
        return self

    @abstractmethod
    def step(self, state: State, seen: Seen) -> State:
        """The state after one answer of the model: a pure function, row by row."""

    def inside(self, state: State, seen: Seen, rows: Tensor) -> Tensor:
        """`[n]`: whether the queries in these rows `[n]` lie in the ball, up to the rounding of an fp32 projection."""
        return self.ball.contains(state.trial.x.index_select(0, rows), state.query.index_select(0, rows))

    def gradients_read(self, state: State) -> Tensor:
        """`[B]` int64: how many gradients the attack reads at each row's query; only asked if it does not read all.

        A query with 0 is one forward pass. Of several objectives the first ones are differentiated.
        """
        raise UserError(
            f"{type(self).__name__} sets reads_all_gradients = False and does not say which it reads; define "
            "gradients_read(state)."
        )

    def guess(self, state: State, steps: Tensor) -> State:
        """The states that probably follow, whatever the answers; only asked if `guesses` is true.

        The engine queries ahead with them where rows of a batch are free. No outcome depends on them.

        Args:
            state: `[B]` rows.
            steps: `[B]` int64, 1 for the next state of a row.
        """
        return state


class MultiGradientAttack(Attack):
    """An attack that needs the gradients of several objectives, such as one for each wrong class.

    Each objective costs one backward pass of the network; the forward pass is shared.
    """

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return self.objectives(logits, trials)[:, 0]

    @abstractmethod
    def objectives(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B, C]` values whose gradients the attack needs, from logits `[B, K]`; `C` may depend on `K` alone."""


class HookedAttack(Attack):
    """An attack that queries the network under hooks, which change its gradients or its forward pass.

    Points are judged without the hooks.
    """

    names_layers: ClassVar[bool] = True  # False where the hooks see functions, whichever module calls them

    @abstractmethod
    def hooks(self, network: nn.Module, state: State) -> AbstractContextManager[object]:
        """The hooks for one query: `network`, in eval mode and unfolded, gets all rows of `state.query` in order.

        Where the hooks name no layers, a folded copy of `network` may get these rows in its place.
        """


@dataclass(frozen=True)
class ClasswiseAttack(Attack):
    """An attack whose state has a value for each class."""

    _: KW_ONLY
    classes: int = field(default=0, repr=False, compare=False)  # measured, no hyper-parameter

    def of(self, classes: int) -> Self:
        """The attack for a model with so many classes."""
        return replace(self, classes=classes)


@dataclass(frozen=True)
class FeatureAttack(Attack):
    """An attack whose objective reads the output of one layer.

    Args:
        layer: dotted name of the layer in the network; None chooses the largest block that ends near the middle.
    """

    _: KW_ONLY
    layer: str | None = None
    feature_shape: tuple[int, ...] = field(default=(), repr=False, compare=False)  # measured, no hyper-parameter

    def layer_in(self, network: nn.Module) -> str:
        """The name of the layer."""
        return _middle(network) if self.layer is None else self.layer

    def at(self, shape: tuple[int, ...]) -> Self:
        """The attack for features of shape `F` per image."""
        return replace(self, feature_shape=shape)

    @abstractmethod
    def feature_objective(self, logits: Tensor, features: Tensor, state: State) -> Tensor:
        """`[B]` the value that the attack maximises, from logits `[B, K]` and features `[B, *F]`."""


def in_package(code: type | Callable[..., object]) -> bool:
    """Whether the class of an attack, or a method of one, is robustkit's own."""
    return code.__module__.startswith("robustkit.")


def cost_of(attack: Attack) -> TrialCost:
    """What an attack declares as its cost.

    Raises:
        UserError: it is no `TrialCost` of whole numbers, in an attack of the user's own.
    """
    cost: object = attack.cost
    if not isinstance(cost, TrialCost):
        raise UserError(f"{type(attack).__name__}.cost must be a property that returns a TrialCost, not {cost!r}.")
    passes: tuple[object, ...] = (cost.forwards, cost.backwards)
    if not all(isinstance(each, int) and each >= 0 for each in passes):
        raise UserError(f"{type(attack).__name__}.cost must count passes in whole numbers, not {cost!r}.")
    return cost


def begin(trials: Trials, query: Tensor) -> State:
    """The state of trials before their first query, at `query`."""
    return State(trials, query, torch.zeros_like(trials.y), torch.zeros_like(trials.y, dtype=torch.bool))


def _middle(network: nn.Module) -> str:
    """The outermost block that ends after 40 to 60 per cent of the network's innermost layers.

    The middle of the network's children would be almost the logits where most layers are in one child `features`.
    """
    leaves = [name for name, module in network.named_modules() if not any(True for _ in module.children())]
    ends: dict[str, int] = {}
    for number, leaf in enumerate(leaves, 1):
        parts = leaf.split(".")
        ends.update(dict.fromkeys((".".join(parts[:depth]) for depth in range(1, len(parts) + 1)), number))
    off = {
        name: abs(number / len(leaves) - 0.5) for name, number in ends.items() if name and _has_forward(network, name)
    }
    near = {name: distance for name, distance in off.items() if distance <= 0.1} or off
    return min(near, key=lambda name: (name.count("."), near[name]) if near is not off else (0, near[name]), default="")


def _has_forward(network: nn.Module, name: str) -> bool:
    """Whether the layer computes something; a list of modules does not."""
    return getattr(type(network.get_submodule(name)), "forward", None) is not nn.Module.forward
