"""The remedy for each kind of gradient masking, and a classifier with remedies."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from robustkit.classifier.classifier import DRAWS_PER_QUERY, Classifier
from robustkit.nethook.names import name_matches
from robustkit.nethook.op_sites import STEPS, TO_NUMPY, CodeLine, GradientStop
from robustkit.nethook.straight_through import CUTS

from .calls import CallRun
from .lines import OpSite

Kind = Literal["bpda", "eot", "loss", "probabilities", "targets", "straight-through", "gradient-free"]

SAFE_LOSS = "log-odds"


class Prescription(NamedTuple):
    """One remedy, in words and as an option of `robustkit evaluate`."""

    kind: Kind
    layer: str
    text: str
    option: str  # empty where the code must be changed


def prescribe(
    run: CallRun, verdict: str, loss: str, lines: Sequence[OpSite], replaced: Collection[str],
    stops: Collection[GradientStop] = (),
) -> Prescription:  # fmt: skip
    """The remedy for one call.

    Args:
        run: the call.
        verdict: on it.
        loss: of the attacks.
        lines: the suspicious ones of its own code.
        replaced: the layers that have BPDA already.
        stops: through what gradients can pass straight in the whole network.
    """
    name = run.site.layer
    shown = f"'{name}'" if name else "the model's own forward"
    if verdict == "randomized":
        return Prescription(
            "eot", name, f"average the gradient over {DRAWS_PER_QUERY} draws (EOT)", f"--eot {DRAWS_PER_QUERY}"
        )
    if verdict == "probabilities":
        return Prescription("probabilities", name, "let the attack climb on log-probabilities", "--probabilities")
    if verdict == "loss saturated":
        text = f"search with the loss {SAFE_LOSS} instead of {loss}"
        return Prescription("loss", name, text, f"--attack pgd:loss={SAFE_LOSS}")
    if verdict == "tied logits":
        text = "aim at the likeliest wrong classes one by one (targeted attack)"
        return Prescription("targets", name, text, "--attack apgd-t")
    passable = run.same_shape if run.leaf else _passes(lines, stops)
    if verdict == "no_grad differs" or not passable or any(name_matches(name, layer) for layer in replaced):
        return Prescription("gradient-free", name, f"attack {shown} without gradients", "--attack square")
    if not run.leaf:
        return Prescription("straight-through", name, _straightened(run, shown, lines), "--straight-through")
    return Prescription(
        "bpda", name, f"BPDA: let the gradient pass {shown} as if it were the identity", f"--bpda {name}"
    )


def _straightened(run: CallRun, shown: str, lines: Sequence[OpSite]) -> str:
    """How to let gradients pass straight through code of a forward method, which --bpda cannot name."""
    if all(site.without_gradients for site in lines):
        text = f"let gradients pass through {shown}: remove its no_grad, which changes no answer"
    else:
        text = f"let gradients pass straight through the step in {shown}"
    whole = f"; or try the identity in place of the whole layer, --bpda {run.site.layer}"
    return text + whole * (run.same_shape and bool(run.site.layer))


def prescribe_for(stops: str) -> Prescription:
    """The remedy where the forward stops gradients, here in words, and no layer masks its own."""
    return Prescription("straight-through", "", f"let gradients pass straight through {stops}", "--straight-through")


def _passes(sites: Sequence[OpSite], stops: Collection[GradientStop]) -> bool:
    """Whether gradients can pass straight through one of these operations; none comes back from numpy.

    Args:
        sites: what may stop the gradient of a layer.
        stops: through what gradients passed in the whole network.
    """
    if any(site.op in TO_NUMPY for site in sites):
        return False
    # An index alone has no gradient; what is looked up by it may have.
    passing, looked_up = {*STEPS, *CUTS}, {(stop.op, stop.place) for stop in stops}
    return any(
        site.op in passing or site.without_gradients or (site.op, CodeLine(site.file, site.line)) in looked_up
        for site in sites
    )


def with_remedies(classifier: Classifier, remedies: Sequence[Prescription]) -> Classifier:
    """The same model with all these remedies."""
    kinds = {remedy.kind for remedy in remedies}
    if "straight-through" in kinds:
        classifier = classifier.straight()
    return replace(
        classifier,
        bpda={**classifier.bpda, **{remedy.layer: None for remedy in remedies if remedy.kind == "bpda"}},
        probabilities=classifier.probabilities or "probabilities" in kinds,
        eot=DRAWS_PER_QUERY if "eot" in kinds else classifier.eot,
    )
