"""What verdicts on corrupted images add to a run's tables.

An average over corruptions and severities, never a worst case: each image under each corruption has one verdict.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from robustkit.evidence.results import result_row
from robustkit.evidence.rows import CleanRecord
from robustkit.evidence.store import Store
from robustkit.evidence.stored_corruptions import corrupted_images, differing_picture
from robustkit.statistics.corruption_error import MeanErrors, corruption_errors
from robustkit.statistics.intervals import mean_of_shares

ROLE: Final = "corruption"
ALL: Final = "all"
CORRUPTION_COLUMNS: Final = (
    *("model", "dataset", "split", "source", "corruption", "severities", "n", "accuracy", "ci_low", "ci_high"),
    *("ci_method", "clean_accuracy", "error", "baseline", "ce", "relative_ce"),
)
# In the frame of images, also of the clean ones, which have one version.
IMAGE_COLUMNS: Final = ("model", "corruption", "sample", "label", "severities", "correct", "pixels")
CLEAN: Final = "-"

Rows = list[dict[str, Any]]
Verdicts = Mapping[tuple[str, int], Mapping[int, bool]]  # by corruption and severity: by image, whether it is right


def different_pictures(store: Store) -> list[str]:
    """A sentence if two models of a run were asked about other corrupted pictures, else nothing."""
    found = differing_picture(store)
    if found is None:
        return []
    name, severity, image = found
    return [
        f"Models of this run were judged on other versions of image {image} under {name} {severity}: the files, or the "
        "libraries that made them, have changed; do not compare them."
    ]


def image_rows(
    described: Mapping[str, Any] | None, store: Store, model: str, clean: Mapping[int, CleanRecord]
) -> list[tuple[str | int, ...]]:
    """The rows of one model with the columns IMAGE_COLUMNS: images that have a verdict at every severity.

    Args:
        described: the corruptions of the run; None for none.
        store: the evidence.
        model: its name.
        clean: its clean images.
    """
    if described is None:
        return []
    names, count = set(described["names"]), len(described["severities"])
    rows: list[tuple[str | int, ...]] = [
        (model, CLEAN, number, row.label, 1, int(row.pred == row.label), 0) for number, row in sorted(clean.items())
    ]
    return rows + [(model, *row) for row in corrupted_images(store, model) if row[0] in names and row[3] == count]


def corruption_rows(described: Mapping[str, Any] | None, verdicts: Verdicts, planned: int) -> Rows:
    """One row of results for each corruption and severity.

    Args:
        described: the corruptions of the run; None for none.
        verdicts: of one model.
        planned: images of the run.
    """
    rows = []
    for name, severity in _cells(described):
        right = verdicts.get((name, severity), {})
        row = result_row(name, ROLE, len(right), sum(right.values()), waiting=planned - len(right))
        place = {"norm": ROLE, "eps": float(severity), "eps_text": str(severity)}
        rows.append({**place, **row, "forwards": len(right)})
    return rows


def corruption_means(
    described: Mapping[str, Any] | None,
    verdicts: Mapping[str, Verdicts],
    clean: Mapping[str, Mapping[int, CleanRecord]],
    baseline: Mapping[str, Any] | None,
    failed: Mapping[str, int],
) -> Rows:
    """For each model one row for each corruption, the mean over severities, and one for the mean over all of them.

    Args:
        described: the corruptions of the run; None for none.
        verdicts: by model.
        clean: the clean images, by model.
        baseline: as in the manifest; None for none.
        failed: how many images have no verdict, by model; they count as wrong, and the interval reaches up to where all
            of them are right.
    """
    if described is None:
        return []
    errors = {model: _mean_errors(described, verdicts[model], clean[model], failed[model]) for model in verdicts}
    divisor = _baseline(baseline, errors)
    rows: Rows = []
    for model, own in errors.items():
        relative = None if divisor is None else corruption_errors(own, divisor)
        names = [*described["names"], *([ALL] if len(described["names"]) > 1 else [])]
        for name in names:
            row = _mean_row(described, verdicts[model], name, failed[model])
            if relative is not None:
                ce = relative.mean if name == ALL else relative.by_corruption.get(name)
                relative_ce = relative.relative_mean if name == ALL else relative.relative.get(name)
                row |= {"baseline": (baseline or {})["name"], "ce": ce, "relative_ce": relative_ce}
            accuracy = None if own.clean is None else 1 - own.clean
            rows.append({"model": model, "source": described["source"], "clean_accuracy": accuracy, **row})
    return rows


def _cells(described: Mapping[str, Any] | None, name: str = ALL) -> list[tuple[str, int]]:
    if described is None:
        return []
    names = described["names"] if name == ALL else [name]
    return [(each, severity) for each in names for severity in described["severities"]]


def _mean_row(described: Mapping[str, Any], verdicts: Verdicts, name: str, failed: int) -> dict[str, Any]:
    """The mean over the cells of a corruption, of the images that have a verdict in each of them or never get one."""
    cells = [verdicts.get(cell, {}) for cell in _cells(described, name)]
    images = set(cells[0]).intersection(*cells[1:]) if cells else set[int]()
    total = sum(
        sum(cell.values()) if len(cell) == len(images) else sum(cell[image] for image in images) for cell in cells
    )
    n, mean = len(images) + failed, total / len(cells)
    share, most = mean_of_shares(mean, n), mean_of_shares(mean + failed, n)
    return {
        "corruption": name, "severities": _span(described["severities"]), "n": n, "accuracy": share.value,
        "ci_low": share.low, "ci_high": most.high, "ci_method": share.method, "error": 1 - share.value,
    }  # fmt: skip


def _mean_errors(
    described: Mapping[str, Any], verdicts: Verdicts, clean: Mapping[int, CleanRecord], failed: int
) -> MeanErrors:
    rows = {name: _mean_row(described, verdicts, name, failed) for name in described["names"]}
    right = sum(row.pred == row.label for row in clean.values())
    corrupted = {name: row["error"] for name, row in rows.items() if row["n"]}
    n = len(clean) + failed
    return MeanErrors(1 - right / n if n else None, corrupted)


def _baseline(noted: Mapping[str, Any] | None, errors: Mapping[str, MeanErrors]) -> MeanErrors | None:
    if noted is None:
        return None
    if "corrupted" in noted:
        return MeanErrors(noted["clean"], noted["corrupted"])
    return errors.get(noted["name"])


def _span(severities: Sequence[int]) -> str:
    first, last = min(severities), max(severities)
    whole = list(severities) == list(range(first, last + 1))
    return (f"{first}-{last}" if first < last else str(first)) if whole else " ".join(map(str, severities))
