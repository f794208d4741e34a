"""The audit of a run: AutoAttack on some random survivors, which are images that no attack of the run broke.

It estimates what the attacks of the run miss. An image that the audit breaks is broken, so the worst case counts it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.image_set import ImageSet
from robustkit.evidence.carried import Origins
from robustkit.evidence.clean_columns import CleanColumns
from robustkit.primitives import noise

AUDIT: Final = "audit"  # column of the plan; attack and role in the tables
ENSEMBLE: Final = "autoattack"

_STREAM = 0x41554449  # keeps this order apart from the noise of attacks


class Audit(NamedTuple):
    """The audit of one model at one threat."""

    survivors: int
    drawn: ImageSet
    records: Mapping[str, AttackColumns]  # by member; of drawn images and of other survivors that it broke

    @property
    def broken(self) -> ImageSet:
        """The images that it broke, those of an earlier draw too."""
        return ImageSet.union(rows.broken for rows in self.records.values())

    @property
    def undecided(self) -> ImageSet:
        """Drawn images without a verdict."""
        return ImageSet.union(self.drawn - rows.images for rows in self.records.values()) - self.broken

    @property
    def all_records(self) -> AttackColumns:
        """The rows of all members, in the order of the members."""
        return AttackColumns.joined(self.records.values())


def draw(seed: int, survivors: Iterable[int], count: int) -> set[int]:
    """`count` survivors, or all if there are fewer, chosen by the seed and the number of each image alone."""
    return noise.choose(seed, _STREAM, survivors, count)


def audit_of(
    seed: int,
    count: int,
    clean: CleanColumns,
    groups: Mapping[str, Sequence[str]],
    records: Mapping[str, AttackColumns],
) -> Audit:
    """The audit of one model at one threat.

    Args:
        seed: of the run.
        count: how many survivors the run was asked to audit.
        clean: the clean images.
        groups: for each ensemble, and for the audit, its members; for each other attack its own name.
        records: rows of each attack.
    """
    others = [name for column, names in groups.items() if column != AUDIT for name in names]
    survivors = clean.correct - ImageSet.union(records[name].broken for name in others)
    drawn = ImageSet(draw(seed, survivors, count))
    own = {name: records[name] for name in groups[AUDIT]}
    # More images are drawn from anew. What an earlier draw broke stays broken; its other rows no longer count.
    broken = ImageSet.union(rows.broken for rows in own.values())
    kept = drawn | (broken & survivors)
    rows_of_kept = {name: rows.of_images(kept) for name, rows in own.items()}
    return Audit(len(survivors), drawn, rows_of_kept)


def counted(places: Origins, audits: Mapping[tuple[str, str], Audit]) -> Origins:
    """The places without those of audited images that no longer count."""
    kept = {(*threat, name): rows.sample for threat, audit in audits.items() for name, rows in audit.records.items()}
    return {
        key: {radius: images[np.isin(images, kept[key])] if key in kept else images for radius, images in radii.items()}
        for key, radii in places.items()
    }
