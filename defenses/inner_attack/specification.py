"""The inner attack of a training, by a text: any attack of the toolkit, or one of the cheap ones made for training."""

import math
from dataclasses import replace
from typing import NamedTuple

from robustkit.errors import UserError
from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack, FeatureAttack, HookedAttack

from .gaussian import Gaussian
from .nfgsm import NFGSM

_WEAK = 3  # gradient steps up to which an attack is known to be overfitted from one epoch to the next
_RS_STEP = 1.25  # in units of eps: Wong et al. 2020, arXiv:2001.03994


class Inner(NamedTuple):
    """How adversarial images are made in training."""

    attack: Attack
    replays: int = 1  # steps of the optimizer on each batch, with the change of the images carried over


def inner(text: str, norm: str, eps: float | str) -> Inner:
    """The inner attack of a specification.

    Args:
        text: "pgd:steps=7" or any other attack; "rs-fgsm", one step of 1.25 eps from a random start; "nfgsm" or
            "nfgsm:noise=1"; "free:4", which learns four times from every batch; "gaussian:sigma=0.25", noise for
            randomized smoothing.
        norm: "Linf", "L2", "L1" or "L0".
        eps: radius.

    Raises:
        UserError: there is no such attack, it cannot be trained against, or it would change no image.
    """
    name, _, rest = text.strip().lower().partition(":")
    if name == "free":
        if not rest.isdecimal() or int(rest) < 2:
            raise UserError(f"{text!r} needs the number of replays, at least 2; write free:4.")
        # The attack serves where no step is taken: statistics, Fisher information.
        return Inner(_checked(_one_step(norm, eps, 1.0), text), int(rest))
    if name == "rs-fgsm":
        if rest:
            raise UserError("rs-fgsm has nothing to set; for another step size write pgd:steps=1,step_size=0.1.")
        return Inner(_checked(_one_step(norm, eps, _RS_STEP), text))
    if name in ("nfgsm", "n-fgsm"):
        values = {key: registry.value_of(value) for key, value in registry.parsed(text)[1].items()}
        if set(values) - {"noise"}:
            raise UserError(f"{text!r}: nfgsm has only noise to set; write nfgsm:noise=2.")
        return Inner(_checked(NFGSM(eps, norm, **values), text))
    if name == "gaussian":
        values = {key: registry.value_of(value) for key, value in registry.parsed(text)[1].items()}
        if set(values) != {"sigma"}:
            raise UserError(f"{text!r}: gaussian noise has its sigma to set; write gaussian:sigma=0.25.")
        return Inner(_checked(Gaussian(eps, norm, **values), text))
    return Inner(_checked(registry.build(text, norm, eps), text))


def scaled(attack: Attack, share: float) -> Attack:
    """The attack at a share of its radius, its step size in proportion."""
    if share == 1.0:
        return attack
    step, eps = getattr(attack, "step_size", None), attack.ball.eps * share
    eps = float(math.ceil(eps)) if attack.ball.norm == "L0" else eps
    return replace(attack, eps=eps, **({} if step is None else {"step_size": step * share}))


def stronger(now: Inner) -> Inner | None:
    """What to train against once the network has overfitted this attack; None where it is no weak one.

    Two steps of half the radius after a single step, else twice as many steps.
    """
    attack = now.attack
    steps = getattr(attack, "steps", 1)
    if steps > _WEAK or attack.sees != "gradients":
        return None
    if steps > 1 and now.replays == 1:
        return Inner(replace(attack, steps=2 * steps))  # type: ignore[call-arg]
    ball = attack.ball
    return Inner(registry.build(f"pgd:steps=2,step_size={ball.eps / 2!r}", ball.norm, ball.eps))


def _one_step(norm: str, eps: float | str, length: float) -> Attack:
    attack = registry.build("pgd:steps=1", norm, eps)
    return replace(attack, step_size=length * attack.ball.eps)  # type: ignore[call-arg]


def _checked(attack: Attack, text: str) -> Attack:
    if isinstance(attack, HookedAttack | FeatureAttack):
        raise UserError(f"{text!r} asks the network under hooks; train against one that does not, such as pgd:steps=7.")
    if attack.targets:
        raise UserError(f"{text!r} aims at classes, and a training makes one image of each; leave targets out.")
    if attack.ball.eps == 0:
        raise UserError("An eps of 0 changes no image; give a radius, or objective=clean to train without an attack.")
    if getattr(attack, "step_size", None) == 0:
        raise UserError(f"The attack {text!r} takes steps of size 0, so it climbs nothing; leave step_size out.")
    return attack
