"""Who is guilty: leaf calls by their own rows, and code in a parent's forward by descending the tree.

Code in a forward is found where it breaks the gradient, not where it merely curves: that cannot be told from depth.
"""

from collections.abc import Mapping

from .calls import CallRun, Map, Site
from .measure import responses
from .question import Question
from .verdicts import CULPABLE, CallSummary, numbers, verdict


class Tree:
    """The calls of a forward pass as a tree."""

    def __init__(self, found: Map) -> None:
        self.runs: dict[Site, CallRun] = {run.site: run for run in found.runs}

    def parents_in(self, site: Site) -> list[CallRun]:
        """The calls directly inside that have calls inside themselves."""
        return [run for run in self.runs.values() if run.parent == site and not run.leaf]

    def leaves_in(self, site: Site) -> list[Site]:
        """All leaf calls inside, at any depth."""
        return [run.site for run in self.runs.values() if run.leaf and site in self.above(run.site)]

    def above(self, site: Site) -> list[Site]:
        """The calls that this one happens in, innermost first."""
        found, parent = [], self.runs[site].parent
        while parent is not None:
            found.append(parent)
            parent = self.runs[parent].parent
        return found


def guilty_parents(question: Question, tree: Tree, words: Mapping[Site, str]) -> dict[Site, tuple[CallSummary, str]]:
    """Calls that mask gradients although nothing inside them does: their own code is to blame.

    Starts with the whole network and looks only into what is bad.
    """
    bad: dict[Site, tuple[CallSummary, str]] = {}
    level = [run for run in tree.runs.values() if run.parent is None and not run.leaf]
    while level:
        answers = responses(question, [run.site for run in level])
        deeper: list[CallRun] = []
        for run in level:
            seen = numbers(answers.get(run.site), None)
            word = verdict(run, seen)
            if word in CULPABLE:
                bad[run.site] = (seen, word)
                deeper += tree.parents_in(run.site)
        level = deeper
    return {site: entry for site, entry in bad.items() if not _explained(site, tree, bad, words)}


def _explained(site: Site, tree: Tree, bad: Mapping[Site, tuple[CallSummary, str]], words: Mapping[Site, str]) -> bool:
    inside = any(words.get(leaf) in CULPABLE for leaf in tree.leaves_in(site))
    deeper = any(site in tree.above(other) for other in bad)
    # A plain Sequential has no code of its own.
    return inside or deeper or tree.runs[site].chain
