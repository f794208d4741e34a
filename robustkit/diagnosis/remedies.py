"""What undoes each kind of masking, and the classifier that takes it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from robustkit.classifier.classifier import Classifier

from .calls import CallRun
from .lines import OpSite
from .straight import Straightened, straightens

Kind = Literal["bpda", "eot", "loss", "probabilities", "targets", "straight-through", "gradient-free"]

EOT = 20  # draws per question; AutoAttack's number
SAFE_LOSS = "log-odds"


class Prescription(NamedTuple):
    """One remedy, in words and as an option of `robustkit evaluate`."""

    kind: Kind
    layer: str
    text: str
    option: str  # empty where a change of code is needed


def prescribed(run: CallRun, verdict: str, loss: str, lines: Sequence[OpSite]) -> Prescription:
    """The remedy for one guilty call, whose own code has these suspicious lines."""
    name = run.site.layer
    shown = f"'{name}'" if name else "the model's own forward"
    if verdict == "stochastic":
        return Prescription("eot", name, f"average the gradient over {EOT} draws (EOT)", f"--eot {EOT}")
    if verdict == "probabilities":
        return Prescription("probabilities", name, "let the attack climb on log-probabilities", "--probabilities")
    if verdict == "loss saturated":
        text = f"search with the loss {SAFE_LOSS} instead of {loss}"
        return Prescription("loss", name, text, f"--attack pgd:loss={SAFE_LOSS}")
    if verdict == "tied logits":
        text = "aim at the likeliest wrong classes one by one (targeted attack)"
        return Prescription("targets", name, text, "--attack apgd-t")
    passable = run.keeps_shape if run.leaf else any(straightens(line) for line in lines)
    if verdict == "two-faced" or not passable:
        return Prescription("gradient-free", name, f"attack {shown} without gradients", "--attack square")
    if not run.leaf:
        text = f"let gradients pass straight through the step in {shown}; as a layer of its own, --bpda can name it"
        return Prescription("straight-through", name, text, "")
    return Prescription(
        "bpda", name, f"BPDA: let the gradient pass {shown} as if it were the identity", f"--bpda {name}"
    )


def treated(classifier: Classifier, remedies: Sequence[Prescription]) -> Classifier:
    """The same model behind all these remedies."""
    kinds = {remedy.kind for remedy in remedies}
    if "straight-through" in kinds:
        classifier = replace(classifier, model=Straightened(classifier.model), fold=False, channels_last=False)
    return replace(
        classifier,
        bpda={**classifier.bpda, **{remedy.layer: None for remedy in remedies if remedy.kind == "bpda"}},
        probabilities=classifier.probabilities or "probabilities" in kinds,
        eot=EOT if "eot" in kinds else classifier.eot,
    )
