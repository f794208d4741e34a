"""Robust accuracy before and after the remedies: what the masking was worth."""

import warnings
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.engine.attack_tensors import Attacked, attack
from robustkit.errors import UserError
from robustkit.primitives import registry

from .remedies import SAFE_LOSS, treated

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

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


class _Try(NamedTuple):
    result: Attacked | None
    refusal: str


def proved(classifier: Classifier, x: Tensor, y: Tensor, diagnosis: "Diagnosis") -> Proof:
    """Attack images of the classifier's own range without the remedies of a diagnosis and with them."""
    kinds = {remedy.kind for remedy in diagnosis.prescription}
    # One draw per query, as by an attack that knows nothing of the noise.
    plain = replace(classifier, eot=1 if "eot" in kinds else classifier.eot)
    usual = f"pgd:steps={STEPS},loss={diagnosis.loss}"
    better = _better(kinds, usual)
    before = _tried(plain, x, y, usual, diagnosis)
    after = _tried(treated(classifier, diagnosis.prescription), x, y, better, diagnosis)
    known = [each.result for each in (before, after) if each.result is not None]
    return Proof(
        clean=known[0].clean_accuracy if known else float("nan"),
        attack_before=usual, before=before.result.robust_accuracy if before.result else None,
        attack_after=better, after=after.result.robust_accuracy if after.result else None,
        refusal=before.refusal or after.refusal, n=len(x),
    )  # fmt: skip


def _better(kinds: AbstractSet[str], usual: str) -> str:
    if "gradient-free" in kinds:
        return f"square:queries={QUERIES}"
    if "targets" in kinds:
        return f"apgd-t:steps={STEPS},targets=3"
    return f"pgd:steps={STEPS},loss={SAFE_LOSS}" if "loss" in kinds else usual


def _tried(classifier: Classifier, x: Tensor, y: Tensor, specification: str, diagnosis: "Diagnosis") -> _Try:
    method = registry.build(specification, diagnosis.norm, diagnosis.eps)
    with warnings.catch_warnings():
        # What the preflight warns of is what the diagnosis says.
        warnings.simplefilter("ignore")
        try:
            return _Try(attack(classifier, x, y, method, seed=diagnosis.seed), "")
        except UserError as error:
            return _Try(None, str(error))
