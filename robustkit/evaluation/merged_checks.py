"""Rows of checks in merged runs: which are copied, the level that the merged run has, and what a reader must know.

A row depends on the image, the model and the seed alone, so rows of several runs are those of one. Which images a check
draws depends on the survivors, though: those of the merged run may be others, whose rows no run has.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robustkit.checks import eight_bits, transfer, zero_gradients
from robustkit.checks.check import Check, highest, reaches
from robustkit.checks.facts import Level, ProbeRecord
from robustkit.evidence.checked import level_of, unmade
from robustkit.evidence.store import Store

_Key = tuple[object, ...]  # model, norm, eps_text, attack or probe, and image


def joined_level(manifests: Sequence[Mapping[str, Any]]) -> Level:
    """The level of checks of the merged run."""
    levels = [level_of(manifest) for manifest in manifests]
    passes_left_out = not _one_version(manifests) and reaches("standard", highest(*levels))
    return "quick" if passes_left_out else highest(*levels)


def rows_of_checks(source: Store, manifests: Sequence[Mapping[str, Any]], carried: set[_Key]) -> Iterator[ProbeRecord]:
    """The rows of one run that are copied.

    Args:
        source: the run.
        manifests: of all runs.
        carried: model, norm, eps_text, attack and image of rows that were copied from a smaller radius: the tables find
            those there, and rows about their pictures have no meaning in the merged run.
    """
    passes = _one_version(manifests)
    models = [str(entry["name"]) for entry in source.manifest()["identity"]["models"]]
    without = set(_about_pictures(carried, models))
    for row in source.every(ProbeRecord):
        of_attack = row.probe.startswith(zero_gradients.PROBE)
        if of_attack or (passes and (row.model, row.norm, row.eps_text, row.probe, row.sample) not in without):
            yield row


def notes_on_checks(
    manifests: Sequence[Mapping[str, Any]], level: Level, checks: Sequence[Check], out: object
) -> Iterator[str]:
    """What the merged run does not have of the checks of its parts."""
    if level != highest(*(level_of(manifest) for manifest in manifests)):
        yield (
            "The passes of checks were made by several versions of robustkit, so the merged run has none of them; "
            f"robustkit evaluate --checks standard --out {out} makes them."
        )
    missing = unmade(checks, level)
    if missing:
        yield (
            f"No run has all passes of {', '.join(missing)}: the survivors are others than in its parts. "
            f"robustkit evaluate --checks {level} --out {out} with all models, attacks and radii makes them."
        )


def _one_version(manifests: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all passes of checks were made by one version, which means the same by the name of a probe."""
    made = [manifest for manifest in manifests if reaches("standard", level_of(manifest))]
    return len({manifest["robustkit"] for manifest in made}) <= 1


def _about_pictures(carried: set[_Key], models: Sequence[str]) -> Iterator[_Key]:
    for model, norm, eps_text, attack, sample in carried:
        yield model, norm, eps_text, eight_bits.probe_name(str(attack)), sample
        for other in models:
            yield other, norm, eps_text, transfer.probe_name(str(model), str(attack)), sample
