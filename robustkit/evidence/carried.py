"""What a smaller radius says about a larger one: a point that breaks an image breaks it in every larger ball.

A run attacks its radii in ascending order and leaves out what is broken already. Radii may also be added later, in any
order, and no row of a store is ever changed. So the tables take the rows that a store would have if all radii had been
asked for at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.image_set import Integers
from robustkit.evidence.picture import Picture
from robustkit.evidence.rows import QueryRecord
from robustkit.primitives.threat import is_minimum

Columns = dict[tuple[str, str, str], AttackColumns]  # by norm, eps_text and attack
# By norm, eps_text and attack: by the radius at which they were attacked, images; no image twice.
Origins = dict[tuple[str, str, str], dict[str, Integers]]

Key = TypeVar("Key")
_NONE = AttackColumns.of(())


def origins(attacked: Columns, threats: Sequence[Sequence[str]], groups: Mapping[str, Sequence[str]]) -> Origins:
    """The images of each attack at each threat, by the radius whose rows count.

    Args:
        attacked: rows of one model.
        threats: norms and radii, ascending within a norm.
        groups: for each ensemble its members, for each other attack its own name.
    """
    places: Origins = {}
    for names in groups.values():
        broken: dict[str, dict[tuple[str, str], Integers]] = {}  # by norm: by attack and radius, images
        for norm, eps_text in threats:
            # How near the nearest error is does not follow from what is broken at some radius.
            before = {} if is_minimum(eps_text) else broken.setdefault(norm, {})
            known = _joined(before.values())
            fresh: dict[tuple[str, str], Integers] = {}
            for name in names:
                own = attacked.get((norm, eps_text, name), _NONE)
                own = own.rows_where(~np.isin(own.sample, known)) if len(known) else own
                errors = own.sample[own.success > 0]
                fresh[name, eps_text] = errors[~np.isin(errors, _joined(fresh.values()))]
                earlier = {radius: images for (attack, radius), images in before.items() if attack == name}
                places[norm, eps_text, name] = _some({eps_text: own.sample} | earlier)
            before |= _some(fresh)
    return places


def carried_columns(attacked: Columns, places: Origins) -> Columns:
    """The rows that count, those of a smaller radius without passes."""
    carried: Columns = {}
    for (norm, eps_text, name), radii in places.items():
        parts = []
        for radius, images in radii.items():
            rows = attacked[norm, radius, name]
            part = rows if len(images) == len(rows) else rows.rows_where(np.isin(rows.sample, images))
            none = np.zeros(len(part), np.int8)
            parts.append(part if radius == eps_text else replace(part, forwards=none, backwards=none))
        together = AttackColumns.joined(parts)
        carried[norm, eps_text, name] = together.rows_where(np.argsort(together.sample)) if len(parts) > 1 else together
    return carried


def carried_queries(
    queried: Mapping[tuple[str, str, str], Mapping[int, QueryRecord]], places: Origins
) -> dict[tuple[str, str, str], dict[int, QueryRecord]]:
    """The counts that count: an image that a smaller radius broke took the queries that it took there."""
    if not queried:
        return {}
    return {
        (norm, eps_text, name): {
            image: found for radius, images in radii.items() for image in images.tolist()
            if (found := queried.get((norm, radius, name), {}).get(image)) is not None
        }
        for (norm, eps_text, name), radii in places.items()
    }  # fmt: skip


def carried_pictures(pictures: Iterable[Picture], model: str, places: Origins) -> list[Picture]:
    """The pictures of one model that count."""
    given: dict[tuple[str, str, str], list[Picture]] = {}
    for one in pictures:
        if one.model == model:
            given.setdefault((one.norm, one.eps_text, one.attack), []).append(one)
    return [
        replace(one, eps_text=eps_text)
        for (norm, eps_text, name), radii in places.items()
        for radius, images in radii.items()
        for one in given.get((norm, radius, name), ())
        if (images == one.sample).any()
    ]


def _some(images: dict[Key, Integers]) -> dict[Key, Integers]:
    """Without the entries that have no image."""
    return {key: own for key, own in images.items() if len(own)}


def _joined(parts: Iterable[Integers]) -> Integers:
    return np.concatenate([np.empty(0, np.int64), *parts])
