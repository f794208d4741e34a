"""Pairs of images before and after an attack, with the model's predictions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.classifier import rejection
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import checked_images, checked_labels
from robustkit.classifier.session import Session
from robustkit.engine.attack_tensors import attack as run_attack
from robustkit.errors import UserError
from robustkit.primitives import ensembles, losses, registry
from robustkit.primitives.protocol import Attack
from robustkit.primitives.rows import Rows

GIVEN = "points as given"


@dataclass(frozen=True)
class Pairs(Rows):
    """One correctly classified image per row; everything on the CPU."""

    number: Tensor  # [B] int64 the image's number in reports
    x: Tensor  # [B, *S] in [0, 1]
    x_adv: Tensor  # [B, *S] in [0, 1]
    y: Tensor  # [B] int64 true class, and the clean prediction
    prediction: Tensor  # [B] int64 class at x_adv
    rival: Tensor  # [B] int64 wrong class with the highest logit at x_adv; equals `prediction` where broken

    @property
    def broken(self) -> Tensor:
        """`[B]` bool: the attack succeeded."""
        return self.prediction != self.y


@dataclass(frozen=True)
class PerturbationOrigin:
    """The attack that produced the perturbed images."""

    attack: str
    norm: str
    eps_text: str
    clean_wrong: int  # images that the model misclassifies without an attack; they are left out


def crafted_points(
    classifier: Classifier, x: Tensor, y: Tensor, attack: str | Attack, eps: float | str | None, norm: str, **how: int
) -> tuple[Tensor, PerturbationOrigin]:
    """Perturbed images in the caller's range, and their origin, in which clean errors are not counted yet.

    Raises:
        UserError: the attack is unknown, or has no radius.
    """
    if isinstance(attack, str):
        if ensembles.is_ensemble(attack):
            members = dict.fromkeys(ensembles.members(attack, norm))
            raise UserError(f"{attack} is several attacks, and a trace follows one; name {' or '.join(members)}.")
        if eps is None:
            raise UserError("An attack needs a radius: give eps, for example eps='8/255', or the points as x_adv.")
        attack = registry.build(attack, norm, eps)
    origin = PerturbationOrigin(registry.spelled(attack), attack.ball.norm, str(attack.eps), 0)
    return run_attack(classifier, x, y, attack, batch_size=how["batch_size"], seed=how["seed"]).x_adv, origin


def correct_pairs(
    classifier: Classifier, session: Session, x: Tensor, x_adv: Tensor, y: Tensor, numbers: Sequence[int]
) -> Pairs:
    """The correctly classified images with their perturbed points, judged within a session.

    Raises:
        UserError: the tensors do not fit each other or the model, or it classifies no image correctly or rejects some.
    """
    rejection.refuse("A trace", classifier.name, rejects=classifier.rejects)
    if len(numbers) != len(x):
        raise UserError(f"There are {len(x)} images but {len(numbers)} numbers; give one for each, or none.")
    if x_adv.shape != x.shape:
        raise UserError(f"x_adv must have the shape of x, {list(x.shape)}, not {list(x_adv.shape)}.")
    clean, perturbed = (classifier.place(checked_images(points.detach(), classifier.bounds)) for points in (x, x_adv))
    before, after = session.judge(clean), session.judge(perturbed)
    y = checked_labels(y.cpu(), len(x), before.shape[1])
    correct = (before.argmax(1) == y).nonzero().flatten()
    if not len(correct):
        raise UserError(
            f"The model gets all {len(y)} images wrong without an attack, so there is nothing to trace; "
            "check its weights, the normalisation and the order of the classes."
        )
    rival = losses.without(after, y).argmax(1)
    everything = Pairs(
        torch.tensor(list(numbers), device="cpu"), clean.cpu(), perturbed.cpu(), y, after.argmax(1), rival
    )
    return everything.take(correct)
