"""The numbers and the verdict of every layer call, and the verdict on the network that follows from them."""

from collections.abc import Sequence
from dataclasses import dataclass

from robustkit.nethook import Layers, get_module, select

from .calls import CallRun, ForwardCalls, Site
from .culprits import CallTree, masking_parents
from .lines import OpSite, forward_of, ranked, unfold_ops, verdict_from
from .loss_gradients import EndToEndNumbers, loss_gradients
from .measure import calls_of, inputs_of, responses
from .record import Verdict
from .subject import Subject
from .verdicts import (  # fmt: skip
    CULPABLE,
    MASKING,
    RIVALS,
    SPREAD,
    WHOLE_FAITHFUL,
    CallSummary,
    median,
    share,
    summarize,
    verdict,
)

LOST = 0.1  # share of images without a usable gradient from which on the network is not called clear


@dataclass(frozen=True)
class Assessment:
    """Numbers and a verdict for each call that was examined, or that is a culprit."""

    calls: ForwardCalls
    summaries: dict[Site, CallSummary]
    verdicts: dict[Site, str]
    lines: dict[Site, tuple[OpSite, ...]]  # of each culprit, the lines of code that may be the cause
    whole: EndToEndNumbers

    @property
    def runs(self) -> list[CallRun]:
        """The calls that have a verdict, in execution order."""
        return [run for run in self.calls.runs if run.site in self.verdicts]

    @property
    def culprits(self) -> list[CallRun]:
        """The calls that mask gradients, draw at random or saturate the loss."""
        return [run for run in self.runs if self.verdicts[run.site] in CULPABLE]


@dataclass(frozen=True)
class OverallVerdict:
    """The verdict on the network, and one sentence that gives the reason."""

    verdict: Verdict
    reason: str


def assess(subject: Subject, layers: Layers | None) -> Assessment:
    """Measure every leaf call, or all calls of `layers`, and find the culprits."""
    calls = calls_of(subject)
    chosen = None if layers is None else set(select(subject.classifier.network, layers))
    runs = [run for run in calls.runs if (run.leaf if chosen is None else run.site.layer in chosen)]
    sites = [run.site for run in runs]
    answers, (gradients, whole) = responses(subject, sites), loss_gradients(subject, sites)
    summaries = {site: summarize(answers.get(site), gradients.get(site)) for site in sites}
    verdicts = {run.site: verdict(run, summaries[run.site]) for run in runs}
    if chosen is None:
        for site, (summary, result) in masking_parents(subject, CallTree(calls), verdicts).items():
            summaries[site], verdicts[site] = summary, result
    _assess_logits(calls.last, whole, summaries, verdicts)
    return Assessment(calls, summaries, verdicts, _lines(subject, summaries, verdicts), whole)


def overall(assessment: Assessment) -> OverallVerdict:
    """The verdict that follows from the verdicts of all calls and from the numbers of the whole network."""
    culprits, whole, verdicts = assessment.culprits, assessment.whole, assessment.verdicts
    causes = {verdicts[run.site] for run in culprits}
    places, count = _places(culprits), sum(run.leaf for run in assessment.calls.runs)
    if causes & {*MASKING}:
        return OverallVerdict("masked", f"Gradients are masked at {places} (of {count} calls), so a robust accuracy "
                              "measured with them is no evidence.")  # fmt: skip
    if "stochastic" in causes:
        return OverallVerdict("stochastic", f"{places} draws at random, so an attack must average over draws, and a "
                              "verdict over answers.")  # fmt: skip
    if causes:
        return OverallVerdict("loss saturated", "The loss has no usable gradient for "
                              f"{_percent(share(whole.lost))} of the images.")  # fmt: skip
    if share(whole.zero) > LOST:
        return OverallVerdict("inconclusive", f"The input gradient is exactly zero for {_percent(share(whole.zero))} "
                              "of the images, and no layer says why.")  # fmt: skip
    # A surrogate for a step function is never faithful at the small scale.
    if median(whole.fidelity_small) < WHOLE_FAITHFUL and "surrogate" not in verdicts.values():
        return OverallVerdict("inconclusive", "From image to margin the gradient is not faithful even at eps/100 "
                              f"({median(whole.fidelity_small):.2f}), and no layer that was looked at says "
                              "why.")  # fmt: skip
    tied = " Its wrong classes tie, so trust targeted attacks." if "tied logits" in verdicts.values() else ""
    return OverallVerdict("clear", f"No call of {count} masks its gradient.{tied}")


def notes(assessment: Assessment, subject: Subject) -> tuple[str, ...]:
    """What else a reader should know."""
    whole, sentences, loss = assessment.whole, [], subject.loss
    if median(whole.fidelity) < WHOLE_FAITHFUL:
        sentences.append(
            "From image to margin the gradient says nothing of a move of size eps, by depth or by curved code in a "
            "forward method; use many small steps, restarts, and an attack without gradients."
        )
    if share(whole.correct) < 0.5:
        sentences.append(
            f"Only {_percent(share(whole.correct))} of the images are classified correctly; few can be attacked."
        )
    if loss != "ce" and share(whole.lost_ce) > LOST:
        sentences.append(
            f"Cross-entropy would have no usable gradient for {_percent(share(whole.lost_ce))} of the images; {loss} "
            "has. Tools that climb cross-entropy see a wall here."
        )
    classifier = subject.classifier
    if classifier.bpda or classifier.eot or classifier.probabilities:
        sentences.append(
            "The remedies given with the model are used by the attacks of the proof, not by the measurements."
        )
    return tuple(sentences)


def _assess_logits(
    last: Site, whole: EndToEndNumbers, summaries: dict[Site, CallSummary], verdicts: dict[Site, str]
) -> None:
    """Give the call that returns the logits its verdict: probabilities, a saturated loss, or tied logits."""
    tied = median(whole.rivals) > RIVALS and median(whole.spread) < SPREAD
    result = "loss saturated" if share(whole.lost) > LOST else "tied logits" if tied else ""
    result = "probabilities" if share(whole.probabilities) == 1 else result
    # Logits without a gradient for another reason have a culprit already; a softmax is curved only because it is one.
    if result and verdicts.get(last, "faithful") in ("faithful", "curved", "constant", "unresolved"):
        summaries.setdefault(last, summarize(None, None))
        verdicts[last] = result


def _lines(
    subject: Subject, summaries: dict[Site, CallSummary], verdicts: dict[Site, str]
) -> dict[Site, tuple[OpSite, ...]]:
    """Candidate lines of each masking call; a verdict becomes more exact where a line explains it."""
    masking = [site for site in summaries if verdicts[site] in MASKING and verdicts[site] != "probabilities"]
    if not masking:
        return {}
    few = subject.subset(slice(2))
    inputs, lines = inputs_of(few, masking, few.x), {}
    for site in masking:
        module = get_module(subject.classifier.network, site.layer)
        candidates = ranked(unfold_ops(module, *inputs[site].args, **inputs[site].kwargs))
        fallback = forward_of(module)
        lines[site] = candidates or ((fallback,) if fallback else ())
        # A step among other layers responds as smoothly as a wrong backward pass; only its line tells them apart.
        if verdicts[site] == "wrong backward":
            verdicts[site] = verdict_from(candidates) or verdicts[site]
    return lines


def _places(runs: Sequence[CallRun]) -> str:
    return ", ".join(f"'{run.site.layer}'" if run.site.layer else "the model's own forward" for run in runs)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"
