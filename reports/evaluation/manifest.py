"""The manifest of a run as lines of text, and the differences between the manifests of several runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from robustkit.evidence.run import Run
from robustkit.primitives.ball import NORMS
from robustkit.primitives.ensembles import is_ensemble
from robustkit.primitives.mask import unmasked

from ..shared.words import UNKNOWN, printable
from .board import Board

_CHOICE: Final = ("reach", "measures", "targets_at_least")  # of a member: which images it attacks, and where it aims


class ManifestLine(NamedTuple):
    """A dotted key and its value as text."""

    key: str
    text: str


class ModelFile(NamedTuple):
    """What a model's name on the page stands for."""

    model: str
    source: str
    sha256: str


class Difference(NamedTuple):
    """A key whose value differs between runs, and the values in the order of the runs."""

    key: str
    texts: list[str]


def entries(value: object, prefix: str = "") -> list[ManifestLine]:
    """The leaves of a nested value with dotted keys, in its order: {"a": {"b": 1}} gives a.b = 1."""
    return list(_leaves(value, prefix))


def differences(runs: Sequence[Run]) -> list[Difference]:
    """Settings that determine the result and differ between `runs`; the models are left out."""
    flat = [{entry.key: entry.text for entry in entries(run.manifest["identity"])} for run in runs]
    keys = dict.fromkeys(key for one in flat for key in one if not key.startswith("model"))
    rows = [Difference(key, [one.get(key, UNKNOWN) for one in flat]) for key in keys]
    return [row for row in rows if len(set(row.texts)) > 1]


def model_files(board: Board) -> list[ModelFile]:
    """The source and the hash of each model of a board."""
    files: dict[str, ModelFile] = {}
    for run, names in zip(board.runs, board.names, strict=True):
        models = run.manifest["identity"].get("models", [])
        for entry in models if isinstance(models, Sequence) else []:
            name = names.get(printable(str(entry["name"]))) if isinstance(entry, Mapping) else None
            if name is not None and name not in files:
                source, digest = (printable(str(entry.get(key) or UNKNOWN)) for key in ("source", "sha256"))
                files[name] = ModelFile(name, source, digest)
    return list(files.values())


def attack_parameters(board: Board) -> dict[str, Mapping[str, Any]]:
    """The hyper-parameters of each attack of a board, by its name."""
    listed = [run.manifest["identity"].get("attacks", []) for run in board.runs]
    entries_of = (each for one in listed if isinstance(one, Sequence) for each in one if isinstance(each, Mapping))
    return {printable(str(each.get("name", "attack"))): each for each in entries_of}


def attacks(run: Run) -> list[str]:
    """Each attack of the run with its hyper-parameters: "pgd (steps = 40, restarts = 1)".

    Of a member of an ensemble, those in the norms of the run, without the settings that choose its images.
    """
    listed: Any = run.manifest["identity"].get("attacks", [])
    tried = {unmasked(str(norm)) for norm in run.results["norm"]}
    norms = [norm for norm in NORMS if norm in tried]
    if isinstance(listed, Mapping):
        return [_described(str(name), value) for name, value in listed.items()]
    return (
        [_named(_in_norms(one, norms)) for one in listed]
        if isinstance(listed, Sequence) and not isinstance(listed, str)
        else [str(listed)]
    )


def chooses_images(run: Run) -> bool:
    """Whether members of an ensemble of the run attack only some of the images that are left."""
    listed = run.manifest["identity"].get("attacks", [])
    return isinstance(listed, Sequence) and any(_is_member(one) and "reach" in one for one in listed)


def _is_member(one: object) -> bool:
    return isinstance(one, Mapping) and is_ensemble(str(one.get("name")).partition("/")[0].partition("@")[0])


def _in_norms(one: Any, norms: Sequence[str]) -> object:
    """An attack with its settings in these norms: those of a single norm in place of the general ones."""
    if not _is_member(one):
        return one
    general = {key: value for key, value in one.items() if key not in (*NORMS, *_CHOICE)}
    own = {norm: one[norm] for norm in norms if norm in one}
    return general | own.get(norms[0], {}) if len(norms) == 1 else general | own


def _named(one: object) -> str:
    if not isinstance(one, Mapping):
        return printable(str(one))
    key = next((key for key in ("name", "attack") if key in one), None)
    return _described(str(one[key]) if key else "attack", {k: v for k, v in one.items() if k != key})


def _described(name: str, parameters: object) -> str:
    inside = ", ".join(f"{entry.key} = {entry.text}" if entry.key else entry.text for entry in entries(parameters))
    return f"{printable(name)} ({inside})" if inside else printable(name)


def _leaves(value: object, key: str) -> Iterator[ManifestLine]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)) and any(isinstance(inner, (Mapping, list, tuple)) for inner in value):
        for number, inner in enumerate(value):
            name = inner.get("name", number) if isinstance(inner, Mapping) else number
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    else:
        yield ManifestLine(printable(key), _text(value))


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(inner) for inner in value)
    return UNKNOWN if value is None else printable(str(value))
