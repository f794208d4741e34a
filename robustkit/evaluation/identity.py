"""What determines the result of a run, and the refusal to mix two runs that differ in it.

A run may grow: more images, attacks, models, norms and radii, and a larger audit. Nothing else may change
under its evidence.
"""

import hashlib
import json
from typing import Any

from robustkit.classifier.access import black_box_in
from robustkit.classifier.classifier import DRAWS_PER_VERDICT, Classifier
from robustkit.errors import UserError
from robustkit.evaluation.differences import changed
from robustkit.evaluation.resolved import Evaluation
from robustkit.evidence.store import SCHEMA
from robustkit.models.fingerprint import fingerprint, function_fingerprint

# A remedy is named only where it is used, so that evidence without any keeps its name.
_USUAL: dict[str, Any] = {"bpda": {}, "eot": None, "draws": DRAWS_PER_VERDICT, "probabilities": False,
                          "straight_through": False, "rejects": False, "cuda_graphs": False, "tf32": False}  # fmt: skip


def identity_of(evaluation: Evaluation) -> dict[str, Any]:
    """The part of a manifest that the results depend on."""
    data, plan = evaluation.data, evaluation.plan
    surrogates = [_model(each) for each in evaluation.surrogates]
    masks = {threat.mask.label: threat.mask.words for threat in plan.threats if threat.mask is not None}
    return {
        "schema": SCHEMA,
        "n": len(evaluation.ids),
        "models": [_model(each) for each in evaluation.classifiers],
        **({"surrogates": surrogates} if surrogates else {}),
        "dataset": _dataset(evaluation),
        "class_names": list(data.class_names),
        "threats": [[threat.norm, threat.eps_text] for threat in plan.threats],
        **({"masks": masks} if masks else {}),
        "attacks": plan.described(),
        **({} if plan.audit is None else {"audit": plan.audit}),
        **({} if evaluation.precision is None else {"precision": _precision(evaluation)}),
        **({} if evaluation.suite is None else {"corruptions": evaluation.suite.described()}),
        "seed": evaluation.seed,
    }


def identity_of_part(whole: dict[str, Any], part: Evaluation) -> dict[str, Any]:
    """The identity of an evaluation of some of the images; the models are not hashed again: they may count passes."""
    return {**whole, "n": len(part.ids), "dataset": _dataset(part)}


def digest(identity: dict[str, Any]) -> str:
    """Eight hex digits that name a run."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]


def compared(old: dict[str, Any], new: dict[str, Any], evaluation: Evaluation) -> None:
    """Check that a run's evidence may be continued.

    Raises:
        UserError: something that determines the result has changed; the sentence names it.
    """
    # Grown data keep their first images: those must be the ones that were used.
    same = {**new["dataset"], "sha256": evaluation.data.fingerprint(evaluation.ids[: old["n"]])}
    differences = changed(old, {**new, "dataset": old["dataset"] if new["n"] < old["n"] else same})
    if differences:
        raise UserError(
            f"This run folder holds another evaluation: {'; '.join(differences)}. Give another --out, or the old "
            "settings."
        )


def _dataset(evaluation: Evaluation) -> dict[str, Any]:
    data = evaluation.data
    return {"name": data.name, "split": data.split, "sha256": data.fingerprint(evaluation.ids)}


def _precision(evaluation: Evaluation) -> dict[str, Any]:
    return {"half_width": evaluation.precision, "images": len(evaluation.data)}


def _model(classifier: Classifier) -> dict[str, Any]:
    remedies = {
        "bpda": {
            layer: function_fingerprint(surrogate_gradient) for layer, surrogate_gradient in classifier.bpda.items()
        },
        "eot": classifier.eot,
        "draws": classifier.draws,
        "probabilities": classifier.probabilities,
        "straight_through": classifier.straight_through,
        "rejects": classifier.rejects,
        "cuda_graphs": classifier.cuda_graphs,
        "tf32": classifier.tf32,
    }
    return {
        "name": classifier.name,
        "source": str(getattr(classifier.model, "source", "given by the caller")),
        "sha256": fingerprint(classifier.model),
        "bounds": list(classifier.bounds),
        "fold": classifier.fold,
        "channels_last": classifier.channels_last,
        "compile": classifier.compile,
        "bf16": classifier.bf16,
        "device": classifier.device.type,
        **{key: value for key, value in remedies.items() if value != _USUAL[key]},
        **({} if black_box_in(classifier.model) is None else {"answers_only": True}),
        **({} if classifier.smoothing is None else {"smoothing": vars(classifier.smoothing)}),
    }
