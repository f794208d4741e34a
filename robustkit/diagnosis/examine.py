"""`diagnose`: measure every layer call, name the causes, prescribe remedies, and prove them with an attack.

The measurements run the model itself under hooks, layer by layer, and do not go through the engine: the engine's query
returns logits and input gradients only. The attacks of the proof go through the engine.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit import limits
from robustkit.classifier import rejection
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.isolation import answering
from robustkit.classifier.logits import require_finite
from robustkit.classifier.sanity_checks import checked_images, checked_labels, checked_model
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments
from robustkit.nethook import Layers, unwrap
from robustkit.primitives import losses
from robustkit.primitives.threat import ball, norm_name, require_norm

from .assessment import Assessment, assess
from .calls import CallRun
from .conclusion import conclude, notes
from .diagnosis import Diagnosis
from .proof import Proof
from .proving import ProofAttack, ProofImages, measure_proof, screen
from .record import EndToEnd, LayerRow
from .remedies import Prescription, prescribe, prescribe_for
from .subject import Subject
from .verdicts import CAUSES, MEANING, median, share

# The inputs of all layers of a batch are in memory at once, so images with more values than this go in small batches.
_LARGE = 3 * 64 * 64
_FEW = 8
_TRIED = 3  # saturated calls, from the last on, whose remedy is tried


@checked_arguments
def diagnose(
    model: nn.Module | Classifier,
    x: Tensor,
    y: Tensor,
    *,
    eps: float | str,
    norm: str = "Linf",
    bounds: tuple[float, float] = (0.0, 1.0),
    loss: str = "log-odds",
    layers: Layers | None = None,
    seed: int = 0,
    batch_size: int = 64,
    prove: bool = True,
) -> Diagnosis:
    """Find where gradients are masked, layer by layer, and prove it by an attack with the remedies.

    A faithful gradient does not prove robustness.

    Args:
        model: takes images in `bounds`, returns logits; its state is restored afterwards.
        x: `[N, *S]` float images; 64 are enough, and fewer than 29 never "clear".
        y: `[N]` true classes.
        eps: radius of the perturbations that gradients are tested with, in units of pixels scaled to [0, 1]; "8/255"
            is exact.
        norm: "Linf", "L2", "L1" or "L0".
        bounds: range of valid values; a `Classifier` has its own.
        loss: the loss that an attack would increase: "log-odds", "ce", "margin" or "dlr".
        layers: examine these layers only, as for `nethook.select`; None examines all.
        seed: of the perturbations and of all noise.
        batch_size: images at once; it changes results by rounding at most.
        prove: attack the images with the model's own gradients and otherwise; without it the verdict is never "clear".

    Raises:
        UserError: images, labels, model or options are not valid; the message says how to correct them.
    """
    classifier = _classifier(model, bounds)
    if not isinstance(loss, str):
        raise UserError(f"diagnose takes a loss by its name or as file.py:function, not {type(loss).__name__}.")
    losses.loss(loss)
    threat = ball(require_norm(norm, "diagnose"), eps)
    if threat.eps == math.inf:
        raise UserError("diagnose tests gradients at a radius, so 'minimum' is none; give one, such as eps='8/255'.")
    if threat.eps == 0:
        raise UserError("eps must be above zero: without a perturbation there is nothing to compare a gradient with.")
    seed = limits.whole_seed(seed)
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, not {batch_size}.")
    images = classifier.place(checked_images(x.detach(), classifier.bounds))
    with classifier.session(images, seed) as session:
        checked_model(classifier, session, images)  # what it warns about, the diagnosis measures
    rows = min(batch_size, _FEW) if images[0].numel() > _LARGE else batch_size
    unchecked = Subject(classifier, images, y, threat, loss, seed, rows)
    with answering(classifier.model, classifier.device, seed):
        labels = checked_labels(y.detach().clone().cpu(), len(x), _class_count(unchecked)).to(classifier.device)
        subject = replace(unchecked, y=labels)
        _require_finite_logits(subject)
        assessment = assess(subject, layers)
    setting = ProofAttack(loss, norm_name(norm), str(eps), seed)
    correct = assessment.whole.correct.nonzero().flatten().tolist()
    proven = _proven(assessment, ProofImages(classifier, x, labels, correct, setting)) if prove else None
    return _diagnosis(subject, proven or Proven(assessment, None), setting)


class Proven(NamedTuple):
    """A proof, and the assessment with the causes that the proof brought to light."""

    assessment: Assessment
    proof: Proof | None


def _proven(assessment: Assessment, images: ProofImages) -> Proven:
    """The cheapest proof that decides: a short screen, else all attacks with the remedies for the suspected calls."""
    loss, replaced = images.setting.loss, images.classifier.bpda
    remedies, random = _prescription(assessment, loss, replaced), "randomized" in assessment.verdicts.values()
    proof = None if assessment.suspicious or random else screen(images)
    if proof is not None:
        return Proven(assessment, proof)
    proof = measure_proof(images, remedies, blocked=assessment.blocked)
    if not (proof.shows_masking and proof.attack_search):
        return Proven(assessment, proof)
    # The remedies do not show the masking, the attack without gradients does: look for a saturated call.
    for run in assessment.saturable[:_TRIED]:
        explained = replace(assessment, verdicts={**assessment.verdicts, run.site: "saturated"})
        other = measure_proof(images, _prescription(explained, loss, replaced), blocked=assessment.blocked)
        if other.shows_masking and not other.attack_search:
            return Proven(explained, other)
    return Proven(assessment, proof)


def _classifier(model: nn.Module | Classifier, bounds: tuple[float, float]) -> Classifier:
    if not isinstance(model, Classifier):
        return Classifier(unwrap(model), bounds=bounds)
    rejection.refuse("A diagnosis", model.name, rejects=model.rejects)
    # Hooks do not see the replicas that DataParallel runs.
    return replace(model, model=unwrap(model.model))


@torch.no_grad()
def _class_count(subject: Subject) -> int:
    return subject.logits(subject.x[:1]).shape[1]


@torch.no_grad()
def _require_finite_logits(subject: Subject) -> None:
    for batch in subject.batches():
        require_finite(batch.logits(batch.x))


def _diagnosis(subject: Subject, proven: Proven, setting: ProofAttack) -> Diagnosis:
    assessment = proven.assessment
    rows = {run.site: _row(run, assessment, subject.loss) for run in assessment.runs}
    final, whole = conclude(assessment, proven.proof), assessment.whole
    causes = [] if final.verdict == "clear" else assessment.causes
    prescription = _prescription(assessment, subject.loss, subject.classifier.bpda)
    if final.verdict == "clear":  # what the proof tried through lines of the forward found nothing
        prescription = tuple(each for each in prescription if each.kind != "straight-through")
    lines = [line for run in causes for line in assessment.lines.get(run.site, ())]
    return Diagnosis(
        model=subject.classifier.name, verdict=final.verdict, reason=final.reason, rows=tuple(rows.values()),
        causes=tuple(rows[run.site] for run in causes), source=tuple(dict.fromkeys(lines)),
        prescription=prescription, proof=proven.proof,
        whole=EndToEnd(
            median(whole.fidelity), median(whole.fidelity_small), share(whole.zero), share(whole.lost),
            median(whole.largest),
        ),
        unseen=assessment.calls.unseen, notes=notes(assessment, proven.proof, subject, final), n=len(subject.x),
        norm=setting.norm, eps=setting.eps, loss=setting.loss, seed=setting.seed,
    )  # fmt: skip


def _row(run: CallRun, assessment: Assessment, loss: str) -> LayerRow:
    summary, verdict = assessment.summaries[run.site], assessment.verdicts[run.site]
    hint = MEANING[verdict]
    if verdict == "loss saturated":
        hint = f"logits of size {median(assessment.whole.largest):,.0f}, of which {loss} keeps nothing in rounding"
    if verdict == "partial backward":
        hint += f" ({100 * summary.missing:.0f} % of its response)"
    return LayerRow(
        layer=run.site.layer, call=run.site.call, kind=run.kind, shape=run.shape, grad_norm=summary.grad_norm,
        zero=summary.zero, nonfinite=summary.nonfinite, fidelity=summary.fidelity,
        fidelity_small=summary.fidelity_small, linearity=summary.linearity, mixed=summary.mixed, reach=summary.reach,
        saturation=summary.saturation, randomized=summary.randomized, detached=summary.detached, verdict=verdict,
        hint=hint, missing=summary.missing,
    )  # fmt: skip


def _prescription(assessment: Assessment, loss: str, replaced: Collection[str]) -> tuple[Prescription, ...]:
    verdicts, stops = assessment.verdicts, assessment.unexplained_stops
    treatable = [run for run in assessment.runs if verdicts[run.site] in (*CAUSES, "tied logits")]
    remedies = (
        prescribe(run, verdicts[run.site], loss, assessment.lines.get(run.site, ()), replaced, assessment.stops)
        for run in treatable
    )
    return (*dict.fromkeys(remedies), *([prescribe_for(stops)] if stops else []))
