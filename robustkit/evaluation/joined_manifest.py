"""The manifest of runs that are merged: what they agree on, with the models, attacks and radii of all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from robustkit.errors import UserError
from robustkit.evaluation.lanes import NOTED_BY_NAME
from robustkit.evaluation.merged_checks import joined_level
from robustkit.evidence.checked import USUAL
from robustkit.host.environment import mixed
from robustkit.primitives.threat import radius_under

_SAME = {
    "schema": "the version of their evidence", "seed": "the seed", "dataset": "the data", "n": "the number of images",
    "class_names": "the names of the classes",
}  # fmt: skip
_UNSAID = {"source"}  # of an entry: where a model is from does not say what it is


def joined_identity(names: Sequence[str], identities: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What determines the results of the merged run.

    Args:
        names: of the run folders, for messages.
        identities: of the runs.

    Raises:
        UserError: they differ in something that both have; the sentence names it.
    """
    first = identities[0]
    for name, other in zip(names[1:], identities[1:], strict=True):
        for key, words in _SAME.items():
            if first[key] != other[key]:
                raise UserError(
                    f"{names[0]} and {name} differ in {words} ({_said(key, first)} and {_said(key, other)}); only runs "
                    "on the same images, with the same seed, can be merged."
                )
    if any(each.get("precision") != first.get("precision") for each in identities):
        raise UserError("The runs have different settings of --precision; merge runs with the same one.")
    joined = {**first, "threats": _threats([each["threats"] for each in identities])}
    for key in ("models", "attacks", "surrogates"):
        entries = _entries(key, names, [each.get(key, []) for each in identities])
        joined |= {key: entries} if entries or key in first else {}
    masks = [each.get("masks", {}) for each in identities]
    joined |= {"masks": {label: words for each in masks for label, words in each.items()}} if any(masks) else {}
    joined |= _corruptions(names, identities)
    audits = [each["audit"] for each in identities if "audit" in each]
    return joined | ({"audit": max(audits)} if audits else {})


def joined_manifest(
    names: Sequence[str], manifests: Sequence[Mapping[str, Any]], identity: Mapping[str, Any]
) -> dict[str, Any]:
    """The entries of the merged run's manifest, but for when it was finished."""
    first = manifests[0]
    seconds: dict[str, float] = {}
    declared = list(dict.fromkeys(text for manifest in manifests for text in manifest.get("declared", [])))
    by_all = [text for text in declared if all(text in manifest.get("declared", []) for manifest in manifests)]
    warnings = [text for manifest in manifests for text in manifest["warnings"]] + [
        f"The condition {text} was declared for some of the merged runs alone, so it is not one of this run."
        for text in declared if text not in by_all
    ]  # fmt: skip
    for manifest in manifests:
        for stage, spent in manifest["seconds"].items():
            seconds[stage] = seconds.get(stage, 0) + spent
    entries = {
        "identity": identity, "robustkit": first["robustkit"], "environment": first["environment"],
        "created": min(manifest["created"] for manifest in manifests), "seconds": seconds,
        "command": " && ".join(dict.fromkeys(manifest["command"] for manifest in manifests)),
        "warnings": list(dict.fromkeys([*warnings, *mixed([manifest["environment"] for manifest in manifests])])),
    }  # fmt: skip
    for key in NOTED_BY_NAME:
        parts = [(name, manifest.get(key, {})) for name, manifest in zip(names, manifests, strict=True)]
        values = _agreeing(key, parts)
        entries |= {key: values} if values else {}
    baselines = [each["corruption_baseline"] for each in manifests if "corruption_baseline" in each]
    entries |= {"corruption_baseline": baselines[0]} if baselines else {}
    entries |= {"declared": by_all} if by_all else {}
    level = joined_level(manifests)
    entries |= {"checks": level} if level != USUAL else {}
    kept = all("adversarial" in manifest for manifest in manifests)
    return entries | ({"adversarial": first["adversarial"]} if kept else {})


def _entries(kind: str, names: Sequence[str], lists: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """All entries, each once; those of one name must be equal."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, entries in zip(names, lists, strict=True):
        for entry in entries:
            where, before = found.setdefault(entry["name"], (name, entry))
            differing = [key for key in {**before, **entry} if before.get(key) != entry.get(key) and key not in _UNSAID]
            if differing:
                raise UserError(
                    f"The {kind[:-1]} {entry['name']} differs between {where} and {name} ({', '.join(differing)}); "
                    "give one of them another name, or merge runs of the same one."
                )
    return [entry for _, entry in found.values()]


def _corruptions(names: Sequence[str], identities: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The corrupted images of the runs that have some, which must be the same."""
    having = [
        (name, each["corruptions"]) for name, each in zip(names, identities, strict=True) if "corruptions" in each
    ]
    for name, described in having[1:]:
        if described != having[0][1]:
            raise UserError(f"{having[0][0]} and {name} have different corruptions; merge runs with the same ones.")
    return {"corruptions": having[0][1]} if having else {}


def _threats(lists: Sequence[Sequence[Sequence[str]]]) -> list[list[str]]:
    """All threats, each once: norms in their order, radii ascending, as in a run that was asked for all of them."""
    together = list(dict.fromkeys((norm, text) for threats in lists for norm, text in threats))
    norms = list(dict.fromkeys(norm for norm, _ in together))
    ordered = sorted(together, key=lambda each: (norms.index(each[0]), radius_under(*each)))
    return [list(each) for each in ordered]


def _agreeing(what: str, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name, values in parts:
        for key, value in values.items():
            if joined.setdefault(key, value) != value:
                raise UserError(
                    f"{name} has a different entry {what} of {key} than the other runs; they cannot be merged."
                )
    return joined


def _said(key: str, identity: Mapping[str, Any]) -> str:
    value = identity[key]
    if key == "dataset":
        return f"{value['name']} {value['split']} {str(value['sha256'])[:8]}".replace("  ", " ")
    return f"{len(value)} names" if isinstance(value, list) else str(value)
