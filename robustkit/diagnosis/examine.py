"""The examination: look, blame, prescribe, prove."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.isolation import exact_arithmetic, untouched
from robustkit.classifier.sanity_checks import checked_images, checked_labels
from robustkit.errors import UserError
from robustkit.nethook import Layers, unwrap
from robustkit.primitives import losses
from robustkit.primitives.threat import ball, norm_name

from .calls import CallRun
from .diagnosis import Diagnosis, EndToEnd, LayerRow
from .findings import Findings, look, notes, overall
from .proof import proved
from .question import Question
from .remedies import Prescription, prescribed
from .verdicts import CULPABLE, MEANING, median, share

_LARGE = 3 * 64 * 64  # values per image above which few images are looked at together, for their activations are kept
_FEW = 8


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
    """Find where gradients are masked, layer by layer, and prove it by attacking with the mask taken off.

    A faithful gradient does not prove robustness.

    Args:
        model: takes images in `bounds`, returns logits; it comes back exactly as it was.
        x: `[N, *S]` float images; some dozens are enough.
        y: `[N]` true classes.
        eps: radius of the moves that gradients are tried on, in units of pixels scaled to [0, 1]; "8/255" is exact.
        norm: "Linf", "L2", "L1" or "L0".
        bounds: range of valid values; a `Classifier` has its own.
        loss: what the attack would climb: "log-odds", "ce", "margin" or "dlr".
        layers: look at these alone, as for `nethook.select`; None looks at all.
        seed: of the moves and of all noise.
        batch_size: images at once; changes results by rounding at most.
        prove: attack the images before and after the prescription.

    Raises:
        UserError: something about images, labels or model is wrong; the sentence names the fix.
    """
    classifier = _classifier(model, bounds)
    losses.loss(loss)
    threat = ball(norm_name(norm), eps)
    if threat.eps == 0:
        raise UserError("eps must be above zero: without a move there is nothing to compare a gradient with.")
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, not {batch_size}.")
    images = classifier.place(checked_images(x.detach(), classifier.bounds))
    rows = min(batch_size, _FEW) if images[0].numel() > _LARGE else batch_size
    asked = Question(classifier, images, y, threat, loss, seed, rows)
    with untouched(classifier.model, seed), torch.inference_mode(mode=False), exact_arithmetic(classifier.device):
        labels = checked_labels(y.detach().cpu(), len(x), _classes(asked)).to(classifier.device)
        question = replace(asked, y=labels)
        found = _diagnosis(question, look(question, layers), norm_name(norm), str(eps))
    if not prove or not found.prescription:
        return found
    return replace(found, proof=proved(classifier, x, y, found))


def _classifier(model: nn.Module | Classifier, bounds: tuple[float, float]) -> Classifier:
    if not isinstance(model, Classifier):
        return Classifier(unwrap(model), bounds=bounds)
    # A compiled model would go past all hooks; what was compiled does not.
    return replace(model, model=unwrap(model.model))


@torch.no_grad()
def _classes(question: Question) -> int:
    return question.ask(question.x[:1]).shape[1]


def _diagnosis(question: Question, findings: Findings, norm: str, eps: str) -> Diagnosis:
    rows = {run.site: _row(run, findings, question.loss) for run in findings.runs}
    final, whole = overall(findings), findings.whole
    lines = [line for run in findings.culprits for line in findings.lines.get(run.site, ())]
    return Diagnosis(
        model=question.classifier.name, verdict=final.verdict, reason=final.reason, rows=tuple(rows.values()),
        culprits=tuple(rows[run.site] for run in findings.culprits), source=tuple(dict.fromkeys(lines)),
        prescription=_prescription(findings, question.loss), proof=None,
        whole=EndToEnd(
            median(whole.fidelity), median(whole.fidelity_small), share(whole.zero), share(whole.lost),
            median(whole.largest),
        ),
        unseen=findings.map.unseen, notes=notes(findings, question), n=len(question.x), norm=norm, eps=eps,
        loss=question.loss, seed=question.seed,
    )  # fmt: skip


def _row(run: CallRun, findings: Findings, loss: str) -> LayerRow:
    seen, word = findings.figures[run.site], findings.words[run.site]
    hint = MEANING[word]
    if word == "loss saturated":
        hint = f"logits of size {median(findings.whole.largest):,.0f}, of which {loss} keeps nothing in rounding"
    return LayerRow(
        layer=run.site.layer, call=run.site.call, kind=run.kind, shape=run.shape, grad_norm=seen.grad_norm,
        zero=seen.zero, nonfinite=seen.nonfinite, fidelity=seen.fidelity, fidelity_small=seen.fidelity_small,
        linearity=seen.linearity, mixed=seen.mixed, reach=seen.reach, saturation=seen.saturation,
        stochastic=seen.stochastic, detached=seen.detached, verdict=word, hint=hint,
    )  # fmt: skip


def _prescription(findings: Findings, loss: str) -> tuple[Prescription, ...]:
    needy = [run for run in findings.runs if findings.words[run.site] in (*CULPABLE, "tied logits")]
    found = (prescribed(run, findings.words[run.site], loss, findings.lines.get(run.site, ())) for run in needy)
    return tuple(dict.fromkeys(found))
