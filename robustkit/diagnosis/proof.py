"""Robust accuracy of the same images before and after the remedies: how much the masking was worth."""

import warnings
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.engine.attack_tensors import Attacked, attack
from robustkit.errors import UserError
from robustkit.primitives import registry

from .remedies import SAFE_LOSS, Prescription, with_remedies

STEPS = 20
QUERIES = 500


class Proof(NamedTuple):
    """The same images attacked twice; accuracies are shares of all of them."""

    clean: float
    attack_before: str
    before: float | None  # None where the attack could not run
    attack_after: str
    after: float | None
    refusal: str  # why an attack could not run
    n: int

    @property
    def gains_nothing(self) -> bool:
        """Whether the attack does as well without the remedies, to within one image."""
        return self.before is not None and self.after is not None and self.after > self.before - 1 / self.n


class ProofAttack(NamedTuple):
    """The threat model of both attacks of a proof, the loss of the first one, and their seed."""

    loss: str
    norm: str
    eps: str
    seed: int


class _Trial(NamedTuple):
    result: Attacked | None
    refusal: str


def measure_proof(
    classifier: Classifier, x: Tensor, y: Tensor, remedies: Sequence[Prescription], setting: ProofAttack
) -> Proof:
    """Attack images in the classifier's own pixel range, first without the remedies and then with them."""
    kinds = {remedy.kind for remedy in remedies}
    # One draw per query: an attack that does not know about the noise.
    plain = replace(classifier, eot=1 if "eot" in kinds else classifier.eot)
    usual = f"pgd:steps={STEPS},loss={setting.loss}"
    adapted = _adapted_attack(kinds, usual)
    before = _attacked(plain, x, y, usual, setting)
    after = _attacked(with_remedies(classifier, remedies), x, y, adapted, setting)
    results = [each.result for each in (before, after) if each.result is not None]
    return Proof(
        clean=results[0].clean_accuracy if results else float("nan"),
        attack_before=usual, before=before.result.robust_accuracy if before.result else None,
        attack_after=adapted, after=after.result.robust_accuracy if after.result else None,
        refusal=before.refusal or after.refusal, n=len(x),
    )  # fmt: skip


def _adapted_attack(kinds: AbstractSet[str], usual: str) -> str:
    if "gradient-free" in kinds:
        return f"square:queries={QUERIES}"
    if "targets" in kinds:
        return f"apgd-t:steps={STEPS},targets=3"
    return f"pgd:steps={STEPS},loss={SAFE_LOSS}" if "loss" in kinds else usual


def _attacked(classifier: Classifier, x: Tensor, y: Tensor, specification: str, setting: ProofAttack) -> _Trial:
    method = registry.build(specification, setting.norm, setting.eps)
    with warnings.catch_warnings():
        # The sanity checks warn of exactly what the diagnosis reports.
        warnings.simplefilter("ignore")
        try:
            return _Trial(attack(classifier, x, y, method, seed=setting.seed), "")
        except UserError as error:
            return _Trial(None, str(error))
