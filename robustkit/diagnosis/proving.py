"""The attacks of a proof: on the same images with the model's own gradients, with the remedies, and without gradients.

An attack without gradients that breaks more than one with gradients is the sign of masking that needs no theory:
Athalye, Carlini & Wagner 2018, arXiv:1802.00420, section 3.1. Ours is paired: the other attacks count only where PGD
and APGD both failed on the same image, so neither luck nor a short search counts as masking.
"""

import warnings
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.engine.attack_tensors import attack
from robustkit.errors import NoInputGradientError, UserError
from robustkit.primitives import registry

from .proof import Proof
from .remedies import SAFE_LOSS, Prescription, with_remedies

STEPS = 20
QUERIES = 500
# The screen of a network without suspicious layers. Twice the queries would double the time of a diagnosis of resnet18.
_SCREEN_IMAGES = 32
_SCREEN_STEPS = 8
_SCREEN_QUERIES = 32
_NO_SEARCH = ("L0",)  # norms for which no attack without gradients is known here


@dataclass(frozen=True)
class ProofAttack:
    """The threat model of all attacks of a proof, the loss of the plain ones, and their seed."""

    loss: str
    norm: str
    eps: str
    seed: int


class _Left(NamedTuple):
    """What an attack left: the rows of correct images that it did not break, or why it could not run."""

    rows: list[int]
    refusal: str = ""


@dataclass(frozen=True)
class ProofImages:
    """Images in the classifier's own pixel range, under attacks in one threat model."""

    classifier: Classifier
    x: Tensor
    y: Tensor
    correct: Sequence[int]  # rows that are classified correctly
    setting: ProofAttack

    def left(self, rows: Sequence[int], specification: str, classifier: Classifier | None = None) -> _Left:
        """The rows that are left after an attack on some rows; all of them if it cannot run."""
        if not rows:
            return _Left([])
        method = registry.build(specification, self.setting.norm, self.setting.eps)
        with warnings.catch_warnings():
            # The sanity checks warn of exactly what the diagnosis reports.
            warnings.simplefilter("ignore")
            try:
                numbers = list(rows)
                result = attack(
                    classifier or self.classifier, self.x[numbers], self.y[numbers], method, seed=self.setting.seed,
                    numbers=numbers,
                )  # fmt: skip
            except NoInputGradientError:  # its text sends the reader to the diagnosis
                return _Left(list(rows), "No gradient reaches the image, so attacks with gradients cannot run.")
            except UserError as error:
                return _Left(list(rows), str(error))
        robust = result.clean_correct & ~result.success
        return _Left([row for row, kept in zip(rows, robust.tolist(), strict=True) if kept])


def screen(images: ProofImages) -> Proof | None:
    """The proof that a short search without gradients breaks nothing that a short gradient attack leaves.

    None if it breaks something: then only the whole proof can tell.
    """
    n, setting = len(images.x), images.setting
    rows = {int(row) for row in torch.linspace(0, n - 1, min(n, _SCREEN_IMAGES), device="cpu").round().tolist()}
    usual = _gradient_attacks(setting, _SCREEN_STEPS)[-1]
    clean = sorted(rows & set(images.correct))
    before = images.left(clean, usual)
    search = "" if setting.norm in _NO_SEARCH else f"square:queries={_SCREEN_QUERIES}"
    if before.refusal:
        return None
    if search:
        tried = images.left(before.rows, search)
        if tried.refusal or tried.rows != before.rows:
            return None
    m = len(rows)
    return Proof(len(clean) / m, usual, len(before.rows) / m, "", None, "", m, search, 0)


def measure_proof(images: ProofImages, remedies: Sequence[Prescription], *, blocked: bool) -> Proof:
    """Attack all images with the model's own gradients, with the remedies, and without gradients.

    Args:
        images: the attacked images.
        remedies: all of them together; there may be none.
        blocked: no gradient reaches the image, so a second attack with gradients would add nothing.
    """
    kinds, classifier, setting = {remedy.kind for remedy in remedies}, images.classifier, images.setting
    # One draw per query: an attack that does not know about the noise. Folding drops a `no_grad` of the model's code.
    plain = replace(classifier, eot=1 if "eot" in kinds else classifier.eot, fold=classifier.fold and not blocked)
    before, names = _under_own_gradients(images, plain, short=blocked or "eot" in kinds)
    left = set(before.rows)
    adapted, after, search, refused = "", None, "", ""
    if kinds:
        adapted = _adapted_attack(kinds, names.split(" + ")[0])
        after = images.left(images.correct, adapted, with_remedies(classifier, remedies))
        left &= set(after.rows)
    if "eot" not in kinds and setting.norm not in _NO_SEARCH:
        # A hundred queries settle most cases of masking.
        for queries in (100, QUERIES):
            if not (refused or _proof(images, names, before, adapted, after, search, left).shows_masking):
                tried = images.left(sorted(left), f"square:queries={queries}")
                refused, left = tried.refusal, set(tried.rows)
                search = "" if refused else f"square:queries={queries}"
    proof = _proof(images, names, before, adapted, after, search, left)
    return proof._replace(refusal=proof.refusal or refused)


def _proof(
    images: ProofImages, names: str, before: _Left, adapted: str, after: _Left | None, search: str,
    left: AbstractSet[int],
) -> Proof:  # fmt: skip
    n = len(images.x)
    return Proof(
        clean=len(images.correct) / n, attack_before=names, before=None if before.refusal else len(before.rows) / n,
        attack_after=adapted, after=len(after.rows) / n if after is not None and not after.refusal else None,
        refusal=before.refusal or (after.refusal if after else ""), n=n, attack_search=search,
        missed=len(before.rows) - len(left),
    )  # fmt: skip


class _Plain(NamedTuple):
    left: _Left
    attacks: str


def _under_own_gradients(images: ProofImages, plain: Classifier, short: bool) -> _Plain:
    """What PGD leaves, and APGD of that; `short` is PGD alone."""
    attacks = _gradient_attacks(images.setting, STEPS)[: 1 if short else None]
    left, names = _Left(list(images.correct)), []
    for each in attacks:
        left = images.left(left.rows, each, plain)
        names.append(each)
        if left.refusal:
            break
    return _Plain(left, " + ".join(names))


def _gradient_attacks(setting: ProofAttack, steps: int) -> list[str]:
    pgd, apgd = (f"{name}:steps={steps},loss={setting.loss}" for name in ("pgd", "apgd"))
    return [pgd] if setting.norm == "L0" else [pgd, apgd]


def _adapted_attack(kinds: AbstractSet[str], usual: str) -> str:
    if "gradient-free" in kinds:
        return f"square:queries={QUERIES}"
    if "targets" in kinds:
        return f"apgd-t:steps={STEPS},targets=3"
    return f"pgd:steps={STEPS},loss={SAFE_LOSS}" if "loss" in kinds else usual
