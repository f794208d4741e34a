"""Facts of a model for tests of checks: ten digits classes, forty images, all correctly classified."""

from typing import Any

from robustkit.checks.facts import ModelFacts, RunThreat


def facts(**given: Any) -> ModelFacts:
    """Facts of a model called net, with Linf 0.1 and Linf 0.2 unless places are given."""
    usual: dict[str, Any] = {
        "model": "net", "level": "quick", "seed": 0, "n": 40, "classes": 10,
        "labels": {number: number % 10 for number in range(40)}, "correct": frozenset(range(40)),
        "places": (RunThreat("Linf", "0.1"), RunThreat("Linf", "0.2")), "attacked": {}, "attacks": (),
    }  # fmt: skip
    return ModelFacts(**{**usual, **given})
