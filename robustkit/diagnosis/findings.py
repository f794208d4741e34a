"""What was found at each call, who is guilty, and what follows for the whole."""

from collections.abc import Sequence
from dataclasses import dataclass

from robustkit.nethook import Layers, get_module, select

from .blame import Tree, guilty_parents
from .calls import CallRun, Map, Site
from .diagnosis import Verdict
from .lines import OpSite, caused, forward_of, ranked, unfold_ops
from .measure import inputs_of, responses, survey
from .question import Question
from .slopes import Whole, slopes
from .verdicts import (  # fmt: skip
    CULPABLE,
    MASKING,
    RIVALS,
    SPREAD,
    WHOLE_FAITHFUL,
    CallSummary,
    median,
    numbers,
    share,
    verdict,
)

LOST = 0.1  # share of images without a usable gradient that makes a verdict


@dataclass(frozen=True)
class Findings:
    """Figures and a word for each call that was looked at, or that is guilty."""

    map: Map
    figures: dict[Site, CallSummary]
    words: dict[Site, str]
    lines: dict[Site, tuple[OpSite, ...]]  # candidates, of the guilty calls
    whole: Whole

    @property
    def runs(self) -> list[CallRun]:
        """The calls, in the order of execution."""
        return [run for run in self.map.runs if run.site in self.words]

    @property
    def culprits(self) -> list[CallRun]:
        """The guilty ones."""
        return [run for run in self.runs if self.words[run.site] in CULPABLE]


@dataclass(frozen=True)
class Overall:
    """The verdict on the network, and one sentence for it."""

    verdict: Verdict
    reason: str


def look(question: Question, layers: Layers | None) -> Findings:
    """Measure every leaf call, or all calls of `layers`, and find who masks gradients."""
    found = survey(question)
    tree = Tree(found)
    chosen = None if layers is None else set(select(question.classifier.network, layers))
    runs = [run for run in found.runs if (run.leaf if chosen is None else run.site.layer in chosen)]
    sites = [run.site for run in runs]
    answers, (at, whole) = responses(question, sites), slopes(question, sites)
    figures = {site: numbers(answers.get(site), at.get(site)) for site in sites}
    words = {run.site: verdict(run, figures[run.site]) for run in runs}
    if chosen is None:
        for site, (seen, word) in guilty_parents(question, tree, words).items():
            figures[site], words[site] = seen, word
    _blame_the_end(found.last, whole, figures, words)
    return Findings(found, figures, words, _lines(question, figures, words), whole)


def overall(findings: Findings) -> Overall:
    """The verdict that follows from the words of all calls and from the network as a whole."""
    culprits, whole, words = findings.culprits, findings.whole, findings.words
    guilt = {words[run.site] for run in culprits}
    places, count = _places(culprits), sum(run.leaf for run in findings.map.runs)
    if guilt & {*MASKING}:
        return Overall("masked", f"Gradients are masked at {places} (of {count} calls), so a robust accuracy measured "
                       "with them is no evidence.")  # fmt: skip
    if "stochastic" in guilt:
        return Overall("stochastic", f"{places} draws at random, so an attack must average over draws, and a verdict "
                       "over answers.")  # fmt: skip
    if guilt:
        return Overall("loss saturated", f"The loss has no usable gradient for {_percent(share(whole.lost))} of the "
                       "images.")  # fmt: skip
    if share(whole.zero) > LOST:
        return Overall("inconclusive", f"The input gradient is exactly zero for {_percent(share(whole.zero))} of the "
                       "images, and no layer says why.")  # fmt: skip
    # A stand-in for a step knows nothing of the small scale, by its nature.
    if median(whole.fidelity_small) < WHOLE_FAITHFUL and "surrogate" not in words.values():
        return Overall("inconclusive", "From image to margin the gradient is not faithful even at eps/100 "
                       f"({median(whole.fidelity_small):.2f}), and no layer that was looked at says why.")  # fmt: skip
    tied = " Its wrong classes tie, so trust targeted attacks." if "tied logits" in words.values() else ""
    return Overall("clear", f"No call of {count} masks its gradient.{tied}")


def notes(findings: Findings, question: Question) -> tuple[str, ...]:
    """What else a reader should know."""
    whole, found, loss = findings.whole, [], question.loss
    if median(whole.fidelity) < WHOLE_FAITHFUL:
        found.append(
            "From image to margin the gradient says nothing of a move of size eps, by depth or by curved code in a "
            "forward method; use many small steps, restarts, and an attack without gradients."
        )
    if share(whole.correct) < 0.5:
        found.append(
            f"Only {_percent(share(whole.correct))} of the images are classified correctly; few can be attacked."
        )
    if loss != "ce" and share(whole.lost_ce) > LOST:
        found.append(
            f"Cross-entropy would have no usable gradient for {_percent(share(whole.lost_ce))} of the images; {loss} "
            "has. Tools that climb cross-entropy see a wall here."
        )
    classifier = question.classifier
    if classifier.bpda or classifier.eot or classifier.probabilities:
        found.append("The remedies given with the model are used by the attacks of the proof, not by the measurements.")
    return tuple(found)


def _blame_the_end(last: Site, whole: Whole, figures: dict[Site, CallSummary], words: dict[Site, str]) -> None:
    """Where the logits leave the network: probabilities, or values that the loss cannot take."""
    tied = median(whole.rivals) > RIVALS and median(whole.spread) < SPREAD
    word = "loss saturated" if share(whole.lost) > LOST else "tied logits" if tied else ""
    word = "probabilities" if share(whole.probabilities) == 1 else word
    # Logits that carry no gradient for another reason have their culprit already; a curved softmax is none of its own.
    if word and words.get(last, "faithful") in ("faithful", "curved", "constant", "unresolved"):
        figures.setdefault(last, numbers(None, None))
        words[last] = word


def _lines(
    question: Question, figures: dict[Site, CallSummary], words: dict[Site, str]
) -> dict[Site, tuple[OpSite, ...]]:
    """Candidate lines of each guilty call; words become more exact where a line explains them."""
    guilty = [site for site in figures if words[site] in MASKING and words[site] != "probabilities"]
    if not guilty:
        return {}
    small = question.part(slice(2))
    inputs, lines = inputs_of(small, guilty, small.x), {}
    for site in guilty:
        given, module = inputs[site], get_module(question.classifier.network, site.layer)
        found = ranked(unfold_ops(module, *given.args, **given.kwargs))
        fallback = forward_of(module)
        lines[site] = found or ((fallback,) if fallback else ())
        # Around other layers, a step's response is as smooth as theirs; its line tells it from a wrong backward pass.
        if words[site] == "wrong backward":
            words[site] = caused(found) or words[site]
    return lines


def _places(runs: Sequence[CallRun]) -> str:
    return ", ".join(f"'{run.site.layer}'" if run.site.layer else "the model's own forward" for run in runs)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"
