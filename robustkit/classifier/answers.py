"""What an attack may see of a network at its queries: labels, logits, the input's gradient, features.

An evaluation and a training answer their attacks' queries with this one function.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.errors import NoInputGradientError, UserError
from robustkit.nethook import Trace
from robustkit.nethook.gradients import gradients
from robustkit.primitives.perceptual import PerceptualAttack, PerceptualSeen
from robustkit.primitives.protocol import (
    Attack,
    FeatureAttack,
    FeatureSeen,
    MultiGradientAttack,
    MultiGradientSeen,
    Seen,
    State,
)
from robustkit.primitives.rows import version

Forward = Callable[[Tensor], Tensor]
Hooks = Callable[[], AbstractContextManager[object]]
LabelOf = Callable[[Tensor], Tensor]
Objective = Callable[[Tensor], Tensor]  # logits [B, K] -> [B], larger is better for the attacker


def likeliest(logits: Tensor) -> Tensor:
    """`[B]` the class of the largest logit."""
    return logits.argmax(1)


def answered(
    attack: Attack,
    state: State,
    forward: Forward,
    network: nn.Module | None = None,
    hooks: Hooks = nullcontext,
    label_of: LabelOf = likeliest,
    objective: Objective | None = None,
    most: int | None = None,
) -> Seen:
    """What the attack may see; a `FeatureSeen` for an attack on a layer, a `MultiGradientSeen` for several objectives.

    Args:
        attack: decides what may be seen.
        state: rows with their queries, of which the attack's ball renders points.
        forward: logits `[B, K]` at points `[B, *S]`, through `network`.
        network: whose layers a feature attack reads; other attacks need none.
        hooks: entered around the forward and the backward pass.
        label_of: predicted classes `[B]` of logits `[B, K]`.
        objective: what the attack maximizes in place of its own objective; not for an attack that sees features or has
            several objectives.
        most: how many objectives are differentiated, the first ones; None for all. 0 is one forward pass, and the
            answer has no gradient.
    """
    if objective is None:
        objective = partial(attack.objective_at, state=state)
    if attack.sees != "gradients":
        return _scores(attack, state, forward, label_of, objective)
    if most == 0:
        with hooks():
            return _scores(attack, state, forward, label_of, objective)
    with torch.enable_grad(), hooks():
        query = state.query.detach().requires_grad_()
        if isinstance(attack, FeatureAttack):
            assert network is not None, "a feature attack without the network whose layer it reads"
            return _features(attack, state, query, forward, network, label_of)
        if isinstance(attack, PerceptualAttack):
            return _perceived(attack, state, query, forward, label_of)
        logits = forward(_rendered(attack, state, query))
        if isinstance(attack, MultiGradientAttack):
            return _several(attack, state, query, logits, label_of, most)
        loss = _values(attack, objective, logits)
        grad = _gradients(loss, [query])[0]
    return Seen(label_of(logits), logits.detach(), loss.detach(), grad.contiguous())


def _rendered(attack: Attack, state: State, query: Tensor) -> Tensor:
    """`[B, *S]` the points that are asked about: the queries, or what the threat renders of them."""
    return attack.ball.render(state.trial.x, query) if attack.ball.renders else query


def _several(
    attack: MultiGradientAttack, state: State, query: Tensor, logits: Tensor, label_of: LabelOf, most: int | None
) -> MultiGradientSeen:
    losses = _values(attack, lambda each: attack.objectives(each, state.trial), logits, "objectives")
    columns = losses.unbind(1)[:most]
    grads = torch.stack([_gradients(loss, [query], retain=loss is not columns[-1])[0] for loss in columns], 1)
    losses = losses.detach()
    return MultiGradientSeen(label_of(logits), logits.detach(), losses[:, 0], grads[:, 0], losses, grads)


def _features(
    attack: FeatureAttack, state: State, query: Tensor, forward: Forward, network: nn.Module, label_of: LabelOf
) -> FeatureSeen:
    layer = attack.layer_in(network)
    with Trace(network, [layer], grad=True, detach=False) as trace:
        logits = forward(_rendered(attack, state, query))
        features = trace[layer].output
        loss = _values(
            attack, lambda each: attack.feature_objective(each, features, state), logits, "feature_objective"
        )
        # The edge, not the tensor: a later layer may have written into it.
        grad, inner = _gradients(loss, [query, trace[layer].last.edge])
    inner = torch.zeros_like(features) if inner is None else inner
    return FeatureSeen(label_of(logits), logits.detach(), loss.detach(), grad.contiguous(), features.detach(), inner)


def _perceived(
    attack: PerceptualAttack, state: State, query: Tensor, forward: Forward, label_of: LabelOf
) -> PerceptualSeen:
    assert attack.features is not None, "a perceptual attack outside of a session"
    with attack.features.watching() as reading:
        logits = forward(query)
        features = reading(query)
        loss = _values(
            attack, lambda each: attack.perceptual_objective(each, features, state), logits, "perceptual_objective"
        )
        grad = _gradients(loss, [query])[0]
    return PerceptualSeen(label_of(logits), logits.detach(), loss.detach(), grad.contiguous(), features.detach())


@torch.no_grad()
def _scores(attack: Attack, state: State, forward: Forward, label_of: LabelOf, objective: Objective) -> Seen:
    logits = forward(_rendered(attack, state, state.query))
    label, nothing = label_of(logits), logits.new_zeros(len(state), 0)
    if attack.sees == "labels":
        return Seen(label, nothing, logits.new_zeros(len(state)), nothing)
    if isinstance(attack, MultiGradientAttack):
        losses = _values(attack, lambda each: attack.objectives(each, state.trial), logits, "objectives")
        query = state.query
        grads = query.new_zeros(len(query), 0, *query.shape[1:])
        return MultiGradientSeen(label, logits, losses[:, 0], nothing, losses, grads)
    return Seen(label, logits, _values(attack, objective, logits), nothing)


def _values(
    attack: Attack, objective: Callable[[Tensor], Any], logits: Tensor, function: str = "objective"
) -> Tensor:  # fmt: skip
    """`[B]` what an attack's objective returns for logits `[B, K]`, or `[B, C]` its objectives.

    Raises:
        UserError: it is no float for each row, or NaN where the logits are not, or it writes into the logits, from
            which the label is read afterwards. An attack of the user's own would be weaker for it, silently. (On a
            GPU, NaN is not looked for: the host would have to wait.)
    """
    before, values = version(logits), objective(logits)
    if version(logits) != before:
        raise UserError(
            f"{type(attack).__name__}.{function} writes into the logits that it was given; make a new tensor, such as "
            "logits.clone()."
        )
    name, rows, axes = f"{type(attack).__name__}.{function}", len(logits), 1 + (function == "objectives")
    wanted = f"[{rows}] floats, one for each image" if axes == 1 else f"[{rows}, C] floats, some for each image"
    if not isinstance(values, Tensor):
        raise UserError(f"{name} must return a tensor, {wanted}, not {type(values).__name__}.")
    if values.dim() != axes or len(values) != rows or not values.is_floating_point():
        found = f"{list(values.shape)} of {values.dtype}".replace("torch.", "")
        raise UserError(f"{name} must return {wanted}, not {found}; {_remedy(values, axes, rows)}.")
    # Some objectives of attacks on features read no logits.
    if function in ("objective", "objectives") and logits.requires_grad and not values.requires_grad:
        raise UserError(
            f"{name} does not depend on the logits as autograd sees it; leave out detach, no_grad, argmax and "
            "comparisons."
        )
    if values.device.type == "cpu" and _hides_nan(values.detach(), logits.detach()):
        raise UserError(
            f"{name} returned NaN for finite logits; correct it, for example with clamp before log or sqrt."
        )
    return values


def _remedy(values: Tensor, axes: int, rows: int) -> str:
    if not values.is_floating_point() and values.dim() == axes:
        return "append .float()"
    if tuple(values.shape) == (rows, 1):
        return "append .squeeze(1)"
    return "leave out sums and means over images"


def _hides_nan(values: Tensor, logits: Tensor) -> bool:
    bad = values.isnan()
    if not bool(bad.any()):
        return False
    bad = bad.any(1) if bad.dim() > 1 else bad
    return bool(torch.isfinite(logits[bad]).all(1).any())


def _gradients(loss: Tensor, points: list[Any], *, retain: bool = False) -> list[Any]:
    """Each row's gradient of its loss in each of the tensors or gradient edges; only the first must have one."""
    # The sum over rows keeps them apart; a mean would scale each gradient by its neighbours.
    # (Ones for `grad_outputs` would do the same, after torch has imported sympy, which takes 0.4 s.)
    grads: Sequence[Any] = [None]
    if loss.requires_grad:
        grads = gradients(loss.sum(), points, retain_graph=retain)
    if grads[0] is None:
        raise NoInputGradientError(
            "The model's logits do not depend on its input as autograd sees it (no_grad, inference_mode, detach or "
            "numpy inside); remove inference_mode, find the layer with robustkit diagnose, take --straight-through or "
            "--bpda LAYER, or use an attack without gradients, such as square."
        )
    return list(grads)
