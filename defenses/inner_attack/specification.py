"""Build the inner attack of a training: any attack of robustkit or of the user, or one that is made for training."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from robustkit import limits
from robustkit.errors import UserError
from robustkit.primitives import registry
from robustkit.primitives.ascent import step_unit
from robustkit.primitives.ball import FREE
from robustkit.primitives.perceptual import PerceptualAttack
from robustkit.primitives.protocol import Attack, ClasswiseAttack, FeatureAttack, HookedAttack, MultiGradientAttack
from robustkit.primitives.threat import ball, is_minimum, norm_name

from .gaussian import Gaussian
from .nfgsm import NFGSM

_DIGITS = 9  # of the number of replays
_FEW_STEPS = 3  # attacks of at most so many gradient steps can be overfitted from one epoch to the next
_RS_STEP = 1.25  # in units of eps: Wong et al. 2020, arXiv:2001.03994


class InnerAttack(NamedTuple):
    """How a training makes its adversarial images."""

    attack: Attack
    replays: int = 1  # optimizer steps on each batch; above 1 the perturbation is carried over, as in free training


def inner_attack(spec: str | Attack, norm: str, eps: float | str) -> InnerAttack:
    """The inner attack of a specification.

    Args:
        spec: an attack object in this ball, or a text. Texts are those of the registry, such as "pgd:steps=7", and:
            "rs-fgsm", one step of 1.25 eps from a random start; "nfgsm" or "nfgsm:noise=1"; "free:4", which learns
            four times from every batch; "gaussian:sigma=0.25", noise for randomized smoothing.
        norm: "Linf", "L2", "L1" or "L0".
        eps: radius.

    Raises:
        UserError: there is no such attack, it cannot be used in training, or it would change no image.
    """
    if is_minimum(eps):
        raise UserError("Training needs a radius, and 'minimum' is none; give one, such as eps='8/255'.")
    if isinstance(spec, Attack):
        if spec.ball != ball(norm_name(norm), eps):
            raise UserError(
                f"The attack {spec!r} has another norm or eps than the training ({norm} {eps}); give both the same."
            )
        return InnerAttack(_checked(spec, repr(spec)))
    # Only the name is compared in lower case: the rest may be a path.
    name, _, arguments = spec.strip().partition(":")
    build = _FOR_TRAINING.get(name.lower())
    if build is None:
        return InnerAttack(_checked(registry.build(spec, norm, eps), spec))
    attack, replays = build(spec, arguments, norm, eps)
    return InnerAttack(_checked(attack, spec), replays)


def scaled(attack: Attack, share: float) -> Attack:
    """The attack at a share of its radius, with its step size in proportion."""
    if share == 1.0:
        return attack
    step_size, eps = getattr(attack, "step_size", None), attack.ball.eps * share
    eps = float(math.ceil(eps)) if attack.ball.norm in ("L0", *FREE) else eps
    return replace(attack, eps=eps, **({} if step_size is None else {"step_size": step_size * share}))


def stronger(inner: InnerAttack) -> InnerAttack | None:
    """The attack to continue with after the network has overfitted this one; None if this one has enough steps.

    It takes twice as many steps; after a single step, two of half the radius.
    """
    attack = inner.attack
    steps = getattr(attack, "steps", 1)
    if steps > _FEW_STEPS or attack.sees != "gradients":
        return None
    if steps > 1 and inner.replays == 1:
        return InnerAttack(replace(attack, steps=2 * steps))  # type: ignore[call-arg]
    norm, eps = attack.ball.norm, attack.ball.eps
    return InnerAttack(registry.build(f"pgd:steps=2,step_size={step_unit(attack.ball) / 2!r}", norm, eps))


def _free(spec: str, arguments: str, norm: str, eps: float | str) -> tuple[Attack, int]:
    replays = int(arguments) if arguments.isdecimal() and len(arguments) <= _DIGITS else 0
    if not 2 <= replays <= limits.REPLAYS:
        raise UserError(
            f"{limits.shown(spec)} needs the number of replays, from 2 to {limits.REPLAYS:,}; write free:4."
        )
    # The attack is used where no optimizer step is taken: BatchNorm statistics, Fisher information.
    return _one_step(norm, eps, 1.0), replays


def _rs_fgsm(spec: str, arguments: str, norm: str, eps: float | str) -> tuple[Attack, int]:
    if arguments:
        raise UserError("rs-fgsm takes no hyper-parameters; for another step size write pgd:steps=1,step_size=0.1.")
    return _one_step(norm, eps, _RS_STEP), 1


def _nfgsm(spec: str, arguments: str, norm: str, eps: float | str) -> tuple[Attack, int]:
    values = _values(spec)
    if set(values) - {"noise"}:
        raise UserError(f"{spec!r}: the only hyper-parameter of nfgsm is noise; write nfgsm:noise=2.")
    return NFGSM(eps, norm, **values), 1


def _gaussian(spec: str, arguments: str, norm: str, eps: float | str) -> tuple[Attack, int]:
    values = _values(spec)
    if set(values) != {"sigma"}:
        raise UserError(f"{spec!r}: gaussian takes exactly one hyper-parameter, sigma; write gaussian:sigma=0.25.")
    return Gaussian(eps, norm, **values), 1


_FOR_TRAINING: dict[str, Callable[[str, str, str, float | str], tuple[Attack, int]]] = {
    "free": _free,
    "rs-fgsm": _rs_fgsm,
    "nfgsm": _nfgsm,
    "n-fgsm": _nfgsm,
    "gaussian": _gaussian,
}


def _values(spec: str) -> dict[str, Any]:
    return {key: registry.value_of(value) for key, value in registry.parsed(spec)[1].items()}


def _one_step(norm: str, eps: float | str, length: float) -> Attack:
    attack = registry.build("pgd:steps=1", norm, eps)
    return replace(attack, step_size=length * attack.ball.eps)  # type: ignore[call-arg]


def _checked(attack: Attack, text: str) -> Attack:
    if isinstance(attack, MultiGradientAttack):
        raise UserError(
            f"{text!r} needs several gradients per query and leaves the ball; train against an attack with one loss, "
            "such as pgd:steps=7."
        )
    if isinstance(attack, HookedAttack | FeatureAttack | PerceptualAttack):
        raise UserError(
            f"{text!r} needs hooks in the network; train against an attack without hooks, such as pgd:steps=7."
        )
    if isinstance(attack, ClasswiseAttack):
        raise UserError(
            f"{text!r} follows the scores of all classes from query to query, which a training does not keep; train "
            "against another attack, such as pgd:steps=7."
        )
    if attack.mask is not None:
        raise UserError("Training has no masks: every pixel of its images may change; leave the attack's mask out.")
    if attack.ball.renders:
        raise UserError(f"Training takes a norm, and {attack.ball.norm} is not one; give norm='Linf', 'L2' or 'L1'.")
    if attack.targets:
        raise UserError(f"{text!r} aims at target classes, but training makes one image of each; leave targets out.")
    if attack.ball.eps == 0:
        raise UserError("An eps of 0 changes no image; give a radius, or objective=clean to train without an attack.")
    if getattr(attack, "step_size", None) == 0:
        raise UserError(f"The attack {text!r} takes steps of size 0 and would change nothing; leave step_size out.")
    return attack
