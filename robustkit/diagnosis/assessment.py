"""The numbers and the verdict of every layer call."""

from dataclasses import dataclass

from robustkit.classifier.gradient_stops import gradient_stops
from robustkit.nethook import Layers, get_module, select
from robustkit.nethook.op_sites import GradientStop, named_stops

from .calls import CallRun, ForwardCalls, Site
from .lines import OpSite, forward_of, ranked, unfold_ops, verdict_from
from .loss_gradients import EndToEndNumbers, loss_gradients
from .masking_calls import CallTree, masking_parents
from .measure import calls_of, inputs_of, responses
from .subject import Subject
from .verdicts import (  # fmt: skip
    CAUSES,
    MASKING,
    RIVALS,
    SPREAD,
    CallSummary,
    may_saturate,
    median,
    share,
    summarize,
    verdict,
)

CROWDED = 0.3  # share of logits at their bounds, as after tanh; other networks have 0.00
UNSEEN = 0.05  # of the response to a move that values without a gradient have; ordinary networks read at most 0.014
LOST = 0.1  # share of images without a usable gradient from which on the network is not called clear


@dataclass(frozen=True)
class Assessment:
    """Numbers and a verdict for each call that was examined, or that is a cause."""

    calls: ForwardCalls
    summaries: dict[Site, CallSummary]
    verdicts: dict[Site, str]
    lines: dict[Site, tuple[OpSite, ...]]  # of each cause, the lines of code that may be the cause
    whole: EndToEndNumbers
    stops: tuple[GradientStop, ...] = ()  # where the forward passes no gradient on, or not all of it

    @property
    def runs(self) -> list[CallRun]:
        """The calls that have a verdict, in execution order."""
        return [run for run in self.calls.runs if run.site in self.verdicts]

    @property
    def causes(self) -> list[CallRun]:
        """The calls that mask gradients, are randomized or saturate the loss."""
        return [run for run in self.runs if self.verdicts[run.site] in CAUSES]

    @property
    def blocked(self) -> bool:
        """Whether the gradient of many images is exactly zero, or not finite."""
        return share(self.whole.zero) > LOST or "non-finite" in self.verdicts.values()

    @property
    def saturable(self) -> list[CallRun]:
        """Faithful calls that have few derivatives left, the last one first."""
        calls = [run for run in self.runs if self.verdicts[run.site] in ("faithful", "curved")]
        return [run for run in reversed(calls) if may_saturate(run, self.summaries[run.site])]

    @property
    def suspicious(self) -> bool:
        """Whether anything was measured that an attack may suffer from."""
        unusual = {*MASKING, "straight-through", "tied logits", "loss saturated"} & set(self.verdicts.values())
        crowded = median(self.whole.crowded) > CROWDED
        return bool(unusual or self.saturable or crowded or self.unseen or self.stops or self.calls.opaque)

    @property
    def unexplained_stops(self) -> str:
        """Where gradients stop although no layer masks its gradient, in words: a lookup by a choice, for example."""
        return "" if self.causes else named_stops([stop.text for stop in self.stops])

    @property
    def unseen(self) -> bool:
        """Whether the logits respond to values of the image at which the gradient is exactly zero."""
        return median(self.whole.unseen) > UNSEEN


def assess(subject: Subject, layers: Layers | None) -> Assessment:
    """Measure every leaf call, or all calls of `layers`, and find the causes."""
    calls = calls_of(subject)
    chosen = None if layers is None else set(select(subject.classifier.network, layers))
    runs = [run for run in calls.runs if (run.leaf if chosen is None else run.site.layer in chosen)]
    sites = [run.site for run in runs]
    answers, (gradients, whole) = responses(subject, runs), loss_gradients(subject, sites)
    summaries = {site: summarize(answers.get(site), gradients.get(site)) for site in sites}
    verdicts = {run.site: verdict(run, summaries[run.site]) for run in runs}
    if chosen is None:
        for site, (summary, result) in masking_parents(subject, CallTree(calls), verdicts).items():
            summaries[site], verdicts[site] = summary, result
    if bool(whole.randomized.any()) and "randomized" not in verdicts.values():
        _find_randomized(subject, calls, summaries, verdicts)
    _assess_logits(calls.last, whole, summaries, verdicts)
    passed = subject.classifier.straight_through
    stops = () if passed else gradient_stops(subject.logits, subject.classifier.model, subject.x[:1])
    return Assessment(calls, summaries, verdicts, _lines(subject, calls, summaries, verdicts), whole, stops)


def _find_randomized(
    subject: Subject, calls: ForwardCalls, summaries: dict[Site, CallSummary], verdicts: dict[Site, str]
) -> None:
    """Give calls that draw random numbers their verdict, though `layers` leaves them out or hooks do not see them."""
    answers = responses(subject, [run for run in calls.runs if run.leaf and run.site not in verdicts])
    found = [site for site, answer in answers.items() if bool(answer.randomized.any())]
    for site in found or [run.site for run in calls.runs[-1:]]:  # the network's own forward, unless it has no calls
        summaries[site], verdicts[site] = summarize(answers.get(site), None), "randomized"


def _assess_logits(
    last: Site, whole: EndToEndNumbers, summaries: dict[Site, CallSummary], verdicts: dict[Site, str]
) -> None:
    """Give the call that returns the logits its verdict: probabilities, a saturated loss, or tied logits."""
    tied = median(whole.rivals) > RIVALS and median(whole.spread) < SPREAD
    result = "loss saturated" if share(whole.lost) > LOST else "tied logits" if tied else ""
    result = "probabilities" if share(whole.probabilities) == 1 else result
    # Logits without a gradient for another reason have a cause already; a softmax is curved only because it is one.
    if result and verdicts.get(last, "faithful") in ("faithful", "curved", "constant", "unresolved"):
        summaries.setdefault(last, summarize(None, None))
        verdicts[last] = result


def _lines(
    subject: Subject, calls: ForwardCalls, summaries: dict[Site, CallSummary], verdicts: dict[Site, str]
) -> dict[Site, tuple[OpSite, ...]]:
    """Candidate lines of each masking call; a verdict becomes more exact where a line explains it."""
    masking = [site for site in summaries if verdicts[site] in MASKING and verdicts[site] != "probabilities"]
    if not masking:
        return {}
    few = subject.subset(slice(2))
    inputs, lines = inputs_of(few, masking, few.x), {}
    runs = {run.site: run for run in calls.runs}
    for site in masking:
        module = get_module(subject.classifier.network, site.layer)
        with runs[site].precision(few.x.device):
            candidates = ranked(unfold_ops(module, *inputs[site].args, **inputs[site].kwargs))
        fallback = forward_of(module)
        lines[site] = candidates or ((fallback,) if fallback else ())
        # A step among other layers responds as smoothly as a wrong backward pass; only its line tells them apart.
        if verdicts[site] == "wrong backward":
            verdicts[site] = verdict_from(candidates) or verdicts[site]
    return lines
