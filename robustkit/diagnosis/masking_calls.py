"""Which layers mask gradients through code of their own forward, found by descending the tree of calls.

Leaf calls are judged by their own row. A parent masks gradients only if it breaks the gradient and nothing inside does.
A parent is never named because of curvature: depth alone adds up to as much.
"""

from collections.abc import Mapping

from .calls import CallRun, ForwardCalls, Site
from .measure import responses
from .subject import Subject
from .verdicts import CAUSES, CallSummary, summarize, verdict


class CallTree:
    """The calls of a forward pass as a tree."""

    def __init__(self, calls: ForwardCalls) -> None:
        self.runs: dict[Site, CallRun] = {run.site: run for run in calls.runs}

    def parents_in(self, site: Site) -> list[CallRun]:
        """The calls directly inside that have calls inside themselves."""
        return [run for run in self.runs.values() if run.parent == site and not run.leaf]

    def leaves_in(self, site: Site) -> list[Site]:
        """All leaf calls inside, at any depth."""
        return [run.site for run in self.runs.values() if run.leaf and site in self.above(run.site)]

    def above(self, site: Site) -> list[Site]:
        """The calls around this one, innermost first."""
        around, parent = [], self.runs[site].parent
        while parent is not None:
            around.append(parent)
            parent = self.runs[parent].parent
        return around


def masking_parents(
    subject: Subject, tree: CallTree, verdicts: Mapping[Site, str]
) -> dict[Site, tuple[CallSummary, str]]:
    """Calls with calls inside whose own code masks gradients, with their summary and verdict.

    Starts with the whole network and descends only into calls that mask gradients.
    """
    masking: dict[Site, tuple[CallSummary, str]] = {}
    level = [run for run in tree.runs.values() if run.parent is None and not run.leaf]
    while level:
        answers = responses(subject, level)
        deeper: list[CallRun] = []
        for run in level:
            summary = summarize(answers.get(run.site), None)
            result = verdict(run, summary)
            if result in CAUSES:
                masking[run.site] = (summary, result)
                deeper += tree.parents_in(run.site)
        level = deeper
    return {site: entry for site, entry in masking.items() if not _explained(site, tree, masking, verdicts)}


def _explained(
    site: Site, tree: CallTree, masking: Mapping[Site, tuple[CallSummary, str]], verdicts: Mapping[Site, str]
) -> bool:
    """Whether a call inside explains the masking, or the call has no code of its own."""
    # A straight-through gradient is not that of the layer, so no call around it can be faithful.
    inside = any(verdicts.get(leaf) in (*CAUSES, "straight-through") for leaf in tree.leaves_in(site))
    deeper = any(site in tree.above(other) for other in masking)
    return inside or deeper or tree.runs[site].sequential
