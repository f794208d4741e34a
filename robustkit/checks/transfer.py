"""Adversarial examples of other models: where they break what the attacks on the model itself left, these failed.

Carlini et al. 2019, arXiv:1902.06705, section 4.3; Athalye et al. 2018, section 3.1: white-box attacks are the stronger
ones. The stored examples of the run's other models are tried, which costs a forward pass each.
"""

from collections.abc import Iterator

from robustkit.checks.check import Finding, Rule, graded_share, not_run
from robustkit.checks.facts import ModelFacts, RunThreat, StoredWitness
from robustkit.checks.stored_examples import StoredExamplesProbe

_NOTED, _WRONG = 0.02, 0.1  # lower end of the share of the survivors with a foreign witness


def probe_name(model: str, attack: str) -> str:
    """What rows say of examples that an attack on another model made."""
    return f"transferred from {model}, {attack}"


def _foreign(facts: ModelFacts) -> Iterator[StoredWitness]:
    """Examples of other models, of images that stand here."""
    standing = {place: facts.survivors(place) for place in facts.radii if not facts.transferred}
    for each in facts.witnesses:
        if each.model != facts.model and each.sample in standing.get(RunThreat(each.norm, each.eps_text), ()):
            yield each


PROBE = StoredExamplesProbe(_foreign, lambda each: probe_name(each.model, each.attack))


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat."""
    found = list(PROBE.tried(facts))
    if not found:
        why = "The run has no other model whose adversarial examples could be tried on survivors."
        yield Finding("", "not_applicable", why)
    for place, examples in found:
        if examples is None:
            yield not_run(place.text)
            continue
        tried, broken = len(examples.tried), len(examples.wrong)
        status = graded_share(broken, tried, noted=_NOTED, wrong=_WRONG)
        text = f"adversarial examples of other models broke {broken} of {tried} survivors."
        yield Finding(place.text, status, text, tuple(sorted(examples.wrong)), {"broken": broken, "tried": tried})


RULE = Rule(
    name="transfer_wins",
    title="Adversarial examples of other models break nothing more",
    level="standard",
    severity="invalidating",
    note="transferred examples break more",
    remedy="Find the layer that masks gradients with robustkit diagnose, and add robustkit evaluate --surrogate.",
    judge=judge,
    probes=(PROBE,),
)
