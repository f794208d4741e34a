"""Whether the rows of a run are those of its plan: none besides, and in a finished run none missing."""

from collections.abc import Iterator

from robustkit.evidence.consistency import Contradiction
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store


def plan_contradictions(run: Run) -> Iterator[Contradiction]:
    """Rows of models, threats or attacks that the run does not have, and verdicts that a finished run lacks.

    Args:
        run: read from its folder.
    """
    identity = run.manifest["identity"]
    models = {str(entry["name"]) for entry in identity["models"]}
    threats = {(norm, eps_text) for norm, eps_text in identity["threats"]}
    attacks = {str(entry["name"]) for entry in identity["attacks"]}
    store = Store(run.folder, reading=True)
    try:
        for model, norm, eps_text, attack in store.attacked_cells():
            if model not in models or (norm, eps_text) not in threats or attack not in attacks:
                what = f"there are results of {attack[:40]!r} at {norm[:40]} {eps_text[:40]}, which is not in the plan"
                yield Contradiction(model[:80], what)
    finally:
        store.close()
    if run.manifest["finished"] is not None and "undecided" in run.results:
        for model in dict.fromkeys(run.results.loc[run.results["undecided"] > 0, "model"]):
            yield Contradiction(str(model), "the run is finished, and verdicts are missing")
