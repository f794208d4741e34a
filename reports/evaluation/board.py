"""Runs side by side: runs on the same images share a board, others get a board of their own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from robustkit.checks.image_set import ImageSet
from robustkit.evidence.picture import Picture
from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows
from robustkit.evidence.sample_rows import joined as joined_samples
from robustkit.evidence.union import UNION
from robustkit.primitives.given_examples import names_of_examples
from robustkit.statistics.randomized_smoothing import ABSTAINS

from ..shared.words import printable
from .image_verdicts import ImageVerdicts, distinct_images
from .joined import joined_rows, parts, same_model
from .result_rows import OrderedRow, ResultRow, ThreatLabel, in_reading_order


class EvaluationProgress(NamedTuple):
    """How many images have a verdict under every attack, of how many planned."""

    done: int
    planned: int
    shard: str = ""  # of a run about some of its images, such as "2/8"

    @property
    def sentence(self) -> str:
        """How far the run is, and what that means for its numbers."""
        state_of = f"Shard {self.shard}" if self.shard else "Unfinished"
        return f"{state_of}: {self.done} of {self.planned} images are finished; numbers under attack are partial."


class SharedImages(NamedTuple):
    """The images of a run; only runs on the same images can be compared."""

    dataset: str
    split: str
    n: int
    chosen: ImageSet  # their numbers in the data set
    pixels: str  # their hash, with labels; empty if the run does not say


@dataclass(frozen=True)
class Board:
    """All models of some runs on the same images; `samples` and `pictures` use the model names of `rows`."""

    runs: tuple[Run, ...]
    images: SharedImages
    rows: tuple[ResultRow, ...]
    samples: SampleRows
    pictures: tuple[Picture, ...]
    unfinished: dict[str, EvaluationProgress]  # by model
    smoothing: dict[str, Mapping[str, Any]]  # by model, of those that are smoothed: sigma, n, n0 and alpha
    randomized: dict[str, Mapping[str, Any]]  # by model, of those that are randomized: eot, draws and alpha
    rejecting: frozenset[str]  # the models that reject images
    joined: dict[str, list[str]]  # by model, of those that several runs attacked: the runs
    names: tuple[dict[str, str], ...]  # for each run the board's names of its models

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, empty if unknown."""
        return self.runs[0].class_names

    @cached_property
    def states(self) -> list[EvaluationProgress]:
        """Progress of the unfinished runs, the least first; empty if all are finished."""
        return sorted({state for run in self.runs if (state := progress(run))})

    @cached_property
    def models(self) -> list[str]:
        """The models in the order of the runs."""
        return list(dict.fromkeys(cell.model for cell in self.rows))

    @cached_property
    def threats(self) -> list[ThreatLabel]:
        """The threats that have a radius: norms in the order of the runs, radii increasing."""
        cells = [cell for cell in self.rows if cell.role != UNION]
        threats = list(dict.fromkeys(cell.threat for cell in cells if cell.threat and not cell.threat.is_minimum))
        norms = list(dict.fromkeys(threat.norm for threat in threats))
        return sorted(threats, key=lambda threat: (norms.index(threat.norm), threat.eps))

    @cached_property
    def minimums(self) -> list[ThreatLabel]:
        """The norms in which distances of adversarial examples were looked for, in the order of the runs."""
        return list(dict.fromkeys(cell.threat for cell in self.rows if cell.threat and cell.threat.is_minimum))

    @cached_property
    def attacks(self) -> list[str]:
        """The attacks and ensembles, without members, in the order of the runs."""
        return list(dict.fromkeys(cell.attack for cell in self.rows if cell.role in ("attack", "ensemble")))

    @cached_property
    def verdicts(self) -> ImageVerdicts:
        """The verdicts image by image."""
        return ImageVerdicts(self.samples)

    @cached_property
    def examples(self) -> frozenset[str]:
        """The names of given examples, which stand among the attacks: nothing is known about how they were made."""
        return frozenset[str]().union(*(names_of_examples(run.manifest["identity"]["attacks"]) for run in self.runs))

    @property
    def transferred(self) -> bool:
        """Whether some attacks are transfer attacks: they queried another model than the one they attacked."""
        return any("@" in name for name in self.attacks)

    def clean(self, model: str) -> ResultRow | None:
        """The model's row without an attack."""
        return next((cell for cell in self.rows if cell.model == model and cell.role == "clean"), None)

    def worst(self, model: str, threat: ThreatLabel) -> ResultRow | None:
        """The model's row in which an image counts as robust if no attack broke it."""
        return next((cell for cell in self._at(model, threat) if cell.role == "worst-case"), None)

    def union(self, model: str) -> ResultRow | None:
        """The model's row in which an image counts as robust if it stands under every threat; None for one norm."""
        return next((cell for cell in self.rows if cell.model == model and cell.role == UNION), None)

    def certified(self, model: str, threat: ThreatLabel) -> ResultRow | None:
        """A smoothed model's row in which an image counts as robust if that is certified."""
        return next((cell for cell in self._at(model, threat) if cell.role == "certified"), None)

    def attack_rows(self, model: str, threat: ThreatLabel) -> list[OrderedRow]:
        """The model's attacks, each ensemble followed by its members, and the audit."""
        return in_reading_order(self._at(model, threat))

    def class_name(self, label: int) -> str:
        """The class's name, or its number if it has none; "no class" where a model abstains or rejects."""
        if label == ABSTAINS:
            return "no class"
        return printable(self.class_names[label]) if 0 <= label < len(self.class_names) else str(label)

    def _at(self, model: str, threat: ThreatLabel) -> list[ResultRow]:
        return self._index.get((model, threat), [])

    @cached_property
    def _index(self) -> dict[tuple[str, ThreatLabel], list[ResultRow]]:
        index: dict[tuple[str, ThreatLabel], list[ResultRow]] = {}
        for cell in self.rows:
            if cell.threat:
                index.setdefault((cell.model, cell.threat), []).append(cell)
        return index


def boards(runs: Sequence[Run]) -> list[Board]:
    """One board for each set of images, in the order of the runs."""
    groups: dict[SharedImages, list[Run]] = {}
    for run in runs:
        groups.setdefault(images(run), []).append(run)
    return [_board(key, group) for key, group in groups.items()]


def images(run: Run) -> SharedImages:
    """The images of a run."""
    chosen = ImageSet(distinct_images(part["sample"] for part in run.sample_rows.parts))
    if run.results.empty:
        return SharedImages("no data", "", 0, chosen, "")
    first, described = run.results.iloc[0], run.manifest["identity"].get("dataset")
    pixels = str(described.get("sha256", "")) if isinstance(described, Mapping) else ""
    return SharedImages(
        printable(str(first["dataset"])), printable(str(first["split"])), int(run.results["n"].max()), chosen, pixels
    )


def progress(run: Run) -> EvaluationProgress | None:
    """The progress of an unfinished run; None for a finished one."""
    if run.manifest["finished"] is not None:
        return None
    planned = run.manifest["identity"].get("n")
    most = int(run.results["n"].max()) if len(run.results) else 0
    planned = planned if isinstance(planned, int) else most
    attacks = run.results[run.results["role"] == "attack"]
    # A row of results may count images that no attack has reached yet, so the samples are counted as well.
    attacked = Counter[tuple[str, ...]]()
    for part in run.sample_rows.parts:
        attacked[part["model"], part["norm"], part["eps_text"], part["attack"]] += len(part["sample"])
    keys = zip(attacks["model"], attacks["norm"], attacks["eps_text"], attacks["attack"], strict=True)
    counts = [int(n) for n in run.results.loc[~run.results["role"].isin(["clean", "member", "audit"]), "n"]] or [0]
    undecided = int(run.results["undecided"].max()) if "undecided" in run.results and len(run.results) else 0
    done = min(*counts, *(int(attacked.get(key, 0)) for key in keys), planned - undecided)
    shard = run.manifest.get("shard")
    return EvaluationProgress(max(0, done), planned, "" if shard is None else f"{shard['index']}/{shard['count']}")


def _board(key: SharedImages, runs: list[Run]) -> Board:
    folders = _folders(runs)
    names = _names(runs, folders)
    unfinished: dict[str, EvaluationProgress] = {}
    smoothing: dict[str, Mapping[str, Any]] = {}
    randomized: dict[str, Mapping[str, Any]] = {}
    rejecting: set[str] = set()
    joined: dict[str, list[str]] = {}
    for run, new, folder in zip(runs, names, folders, strict=True):
        smoothing |= {new[name]: setting for name, setting in _smoothing(run).items() if name in new}
        noted = run.manifest.get("randomized", {})
        randomized |= {new[name]: noted[name] for name in noted if name in new}
        rejecting |= {new[name] for name in _rejecting(run) if name in new}
        state = progress(run)
        if state:
            unfinished |= dict.fromkeys(new.values(), state)
        for name in new.values():
            joined.setdefault(name, []).append(folder)
    contributed = parts(runs, names, folders)
    samples = joined_samples([part.samples for part in contributed])
    identities = [run.manifest["identity"] for run in runs]
    rows = joined_rows([row for part in contributed for row in part.rows], samples, identities)
    pictures = tuple(picture for part in contributed for picture in part.pictures)
    several = {name: where for name, where in joined.items() if len(where) > 1}
    return Board(
        tuple(runs), key, rows, samples, pictures, unfinished, smoothing, randomized, frozenset(rejecting), several,
        tuple(names),
    )  # fmt: skip


def _rejecting(run: Run) -> list[str]:
    entries = [entry for entry in run.manifest["identity"]["models"] if isinstance(entry, Mapping)]
    return [printable(str(entry["name"])) for entry in entries if entry.get("rejects")]


def _smoothing(run: Run) -> dict[str, Mapping[str, Any]]:
    entries = [entry for entry in run.manifest["identity"]["models"] if isinstance(entry, Mapping)]
    return {printable(str(entry["name"])): entry["smoothing"] for entry in entries if "smoothing" in entry}


def _folders(runs: list[Run]) -> list[str]:
    """For each run a name that tells it apart: its folder's, with a number where two folders share a name."""
    times = Counter(run.name for run in runs)
    return [
        printable(run.name if times[run.name] == 1 else f"{run.name}, run {number}")
        for number, run in enumerate(runs, start=1)
    ]


def _names(runs: list[Run], folders: list[str]) -> list[dict[str, str]]:
    """For each run the names of its models on the board; where two models share a name, the folder's is added."""
    models = [_models(run) for run in runs]
    first: dict[str, Run] = {}
    clashes = set()
    for run, own in zip(runs, models, strict=True):
        clashes |= {name for name in own if name in first and not same_model(first[name], run, name)}
        first |= {name: run for name in own if name not in first}
    return [
        {name: f"{name} ({folder})" if name in clashes else name for name in own}
        for own, folder in zip(models, folders, strict=True)
    ]


def _models(run: Run) -> list[str]:
    pictured = [picture.model for picture in run.pictures]
    names = [*run.results["model"], *(part["model"] for part in run.sample_rows.parts), *pictured]
    return list(dict.fromkeys(printable(str(name)) for name in names))
