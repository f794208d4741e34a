"""Whether the rows of a run are those of its plan: none besides, and in a finished run none missing."""

from collections.abc import Iterator

from robustkit.evidence.consistency import Contradiction
from robustkit.evidence.rows import TABLE_OF
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store

# Further tables whose rows are about a model of the run; answers may be those of a surrogate.
_OF_MODELS = tuple(table for table in TABLE_OF.values() if table not in ("attacked", "answers", "original"))


def plan_contradictions(run: Run) -> Iterator[Contradiction]:
    """Rows of models, threats, attacks or images that the run does not have, and verdicts that a finished run lacks.

    Args:
        run: read from its folder.
    """
    identity = run.manifest["identity"]
    models = {str(entry["name"]) for entry in identity["models"]}
    threats = {(norm, eps_text) for norm, eps_text in identity["threats"]}
    attacks = {str(entry["name"]) for entry in identity["attacks"]}
    store = Store(run.folder, reading=True)
    try:
        for model, norm, eps_text, attack in store.read("SELECT DISTINCT model, norm, eps_text, attack FROM attacked"):
            if model not in models or (norm, eps_text) not in threats or attack not in attacks:
                found = f"{str(attack)[:40]!r} at {str(norm)[:40]} {str(eps_text)[:40]}"
                yield Contradiction(str(model)[:80], f"there are results of {found}, which is not in the plan")
        for model, count in store.read("SELECT model, COUNT(*) FROM clean GROUP BY model"):
            if count > identity["n"]:
                yield Contradiction(str(model)[:80], f"there are {count} images, and the run has {identity['n']}")
        smoothed = {str(entry["name"]) for entry in identity["models"] if "smoothing" in entry}
        for table in _OF_MODELS:
            named = {str(model) for (model,) in store.read(f"SELECT DISTINCT model FROM {table}")}
            for model in sorted(named - (smoothed if table == "certified" else models)):
                yield Contradiction(model[:80], f"there are rows in table {table!r}, which are not in the plan")
    finally:
        store.close()
    if run.manifest["finished"] is not None and "undecided" in run.results:
        for model in dict.fromkeys(run.results.loc[run.results["undecided"] > 0, "model"]):
            yield Contradiction(str(model), "the run is finished, and verdicts are missing")
