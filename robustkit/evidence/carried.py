"""What a smaller radius says about a larger one: a point that breaks an image breaks it in every larger ball.

A run attacks its radii in ascending order and leaves out what is broken already. Radii may also be added later, in any
order, and no row of a store is ever changed. So the tables take the rows that a store would have if all radii had been
asked for at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.rows import QueryRecord
from robustkit.evidence.run import Picture
from robustkit.primitives.threat import is_minimum

Columns = dict[tuple[str, str, str], AttackColumns]  # by norm, eps_text and attack
Origins = dict[tuple[str, str, str], dict[int, str]]  # for each image the radius at which it was attacked

_NONE = AttackColumns.of(())


def origins(attacked: Columns, threats: Sequence[Sequence[str]], groups: Mapping[str, Sequence[str]]) -> Origins:
    """The images of each attack at each threat, each with the radius whose row counts.

    Args:
        attacked: rows of one model.
        threats: norms and radii, ascending within a norm.
        groups: for each ensemble its members, for each other attack its own name.
    """
    places: Origins = {}
    for names in groups.values():
        broken: dict[str, dict[int, tuple[str, str]]] = {}  # by norm and image: the attack, and its radius
        for norm, eps_text in threats:
            # How near the nearest error is does not follow from what is broken at some radius.
            before = {} if is_minimum(eps_text) else broken.setdefault(norm, {})
            fresh: dict[int, tuple[str, str]] = {}
            for name in names:
                key = norm, eps_text, name
                own = attacked.get(key, _NONE)
                own = own.rows_where(~np.isin(own.sample, np.fromiter(before, np.int64)))
                fresh = dict.fromkeys(own.broken, (name, eps_text)) | fresh
                places[key] = dict.fromkeys(own.sample.tolist(), eps_text)
                places[key] |= {image: radius for image, (attack, radius) in before.items() if attack == name}
            before |= fresh
    return places


def carried_columns(attacked: Columns, places: Origins) -> Columns:
    """The rows that count, those of a smaller radius without passes."""
    carried: Columns = {}
    for (norm, eps_text, name), images in places.items():
        parts = []
        for radius in dict.fromkeys(images.values()):
            part = attacked[norm, radius, name].of_images(image for image, place in images.items() if place == radius)
            none = np.zeros(len(part), np.int64)
            parts.append(part if radius == eps_text else replace(part, forwards=none, backwards=none))
        together = AttackColumns.joined(parts)
        carried[norm, eps_text, name] = together.rows_where(np.argsort(together.sample))
    return carried


def carried_queries(
    queried: Mapping[tuple[str, str, str], Mapping[int, QueryRecord]], places: Origins
) -> dict[tuple[str, str, str], dict[int, QueryRecord]]:
    """The counts that count: an image that a smaller radius broke took the queries that it took there."""
    if not queried:
        return {}
    return {
        (norm, eps_text, name): {
            image: found for image, radius in images.items()
            if (found := queried.get((norm, radius, name), {}).get(image)) is not None
        }
        for (norm, eps_text, name), images in places.items()
    }  # fmt: skip


def carried_pictures(pictures: Iterable[Picture], model: str, places: Origins) -> list[Picture]:
    """The pictures of one model that count."""
    given: dict[tuple[str, str, str], list[Picture]] = {}
    for one in pictures:
        if one.model == model:
            given.setdefault((one.norm, one.eps_text, one.attack), []).append(one)
    return [
        replace(one, eps_text=eps_text)
        for (norm, eps_text, name), images in places.items()
        for radius in dict.fromkeys(images.values())
        for one in given.get((norm, radius, name), ())
        if images.get(one.sample) == radius
    ]
