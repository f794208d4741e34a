"""Whether the adversarial examples that a run kept are those that its rows count."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from robustkit.evidence.consistency import Contradiction, image_list
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from robustkit.evidence.witnesses import kept_witnesses, mask_of, missing_witnesses, problems_of
from robustkit.primitives.mask import Mask, unmasked
from robustkit.primitives.threat import is_rendered


class KeptCheck(NamedTuple):
    """The stored adversarial examples, checked without a model."""

    examples: int
    contradictions: list[Contradiction]
    unchecked: list[str]  # sentences


def check_kept(run: Run, masks: Mapping[str, Mask]) -> KeptCheck:
    """Check each stored example: range, ball, mask, distances, and that none is missing.

    Args:
        run: read from its folder.
        masks: those that are known, by label; rectangles need not be given.
    """
    if "adversarial" not in run.manifest:
        return KeptCheck(0, [], [])
    store = Store(run.folder, reading=True)
    try:
        count, found = 0, list[Contradiction]()
        for entry in run.manifest["identity"]["models"]:
            name = str(entry["name"])
            problems: dict[str, set[int]] = {}
            for witness in kept_witnesses(store, name):
                count += 1
                for problem in problems_of(witness, masks):
                    problems.setdefault(problem, set()).add(witness.row.sample)
            if missing := {row.sample for row in missing_witnesses(store, name)}:
                problems["is missing"] = missing
            found += [
                Contradiction(name, f"a stored adversarial example {problem} ({image_list(images)})")
                for problem, images in problems.items()
            ]
        return KeptCheck(count, found, list(_unchecked(run, masks)))
    finally:
        store.close()


def _unchecked(run: Run, masks: Mapping[str, Mask]) -> Iterator[str]:
    for norm in dict.fromkeys(norm for norm, _ in run.manifest["identity"]["threats"]):
        if norm != unmasked(norm) and mask_of(norm, masks) is None:
            yield f"{norm}: not checked whether only masked pixels change; give the mask with --mask"
        if is_rendered(unmasked(norm)):
            yield f"{norm}: not checked whether the examples lie within the radius; their parameters are not stored"
