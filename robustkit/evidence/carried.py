"""What a smaller radius says about a larger one: a point that breaks an image breaks it in every larger ball.

A run attacks its radii in ascending order and leaves out what is broken already. Radii may also be added later, in any
order, and no row of a store is ever changed. So the tables take the rows that a store would have if all radii had been
asked for at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from robustkit.evidence.rows import AttackRecord, QueryRecord
from robustkit.evidence.run import Picture
from robustkit.primitives.threat import is_minimum

Records = dict[tuple[str, str, str], list[AttackRecord]]  # by norm, eps_text and attack
Origins = dict[tuple[str, str, str], dict[int, str]]  # for each image the radius at which it was attacked


def origins(records: Records, threats: Sequence[Sequence[str]], columns: Mapping[str, Sequence[str]]) -> Origins:
    """The images of each attack at each threat, each with the radius whose row counts.

    Args:
        records: rows of one model.
        threats: norms and radii, ascending within a norm.
        columns: for each ensemble its members, for each other attack its own name.
    """
    places: Origins = {}
    for names in columns.values():
        broken: dict[str, dict[int, tuple[str, str]]] = {}  # by norm and image: the attack, and its radius
        for norm, eps_text in threats:
            # How near the nearest error is does not follow from what is broken at some radius.
            before = {} if is_minimum(eps_text) else broken.setdefault(norm, {})
            fresh: dict[int, tuple[str, str]] = {}
            for name in names:
                key = norm, eps_text, name
                own = [row for row in records.get(key, ()) if row.sample not in before]
                fresh |= {row.sample: (name, eps_text) for row in own if row.success and row.sample not in fresh}
                places[key] = {row.sample: eps_text for row in own}
                places[key] |= {image: radius for image, (attack, radius) in before.items() if attack == name}
            before |= fresh
    return places


def carried_records(records: Records, places: Origins) -> Records:
    """The rows that count, those of a smaller radius without passes."""
    rows = {(*key, row.sample): row for key, group in records.items() for row in group}
    carried: Records = {}
    for (norm, eps_text, name), images in places.items():
        taken = ((rows[norm, radius, name, image], radius) for image, radius in sorted(images.items()))
        carried[norm, eps_text, name] = [
            row if radius == eps_text else replace(row, eps_text=eps_text, forwards=0, backwards=0)
            for row, radius in taken
        ]
    return carried


def carried_queries(
    queried: Mapping[tuple[str, str, str], Mapping[int, QueryRecord]], places: Origins
) -> dict[tuple[str, str, str], dict[int, QueryRecord]]:
    """The counts that count: an image that a smaller radius broke took the queries that it took there."""
    return {
        (norm, eps_text, name): {
            image: found for image, radius in images.items()
            if (found := queried.get((norm, radius, name), {}).get(image)) is not None
        }
        for (norm, eps_text, name), images in places.items()
    }  # fmt: skip


def carried_pictures(pictures: Iterable[Picture], places: Mapping[str, Origins]) -> list[Picture]:
    """The pictures that count, in the order of a store; `places` by model."""
    given = {(one.model, one.norm, one.eps_text, one.attack, one.sample): one for one in pictures}
    counted = []
    for model, of_model in places.items():
        for (norm, eps_text, name), images in of_model.items():
            for image, radius in images.items():
                one = given.get((model, norm, radius, name, image))
                if one is not None:
                    counted.append(replace(one, eps_text=eps_text))
    return sorted(counted, key=lambda one: (one.model, one.norm, one.eps_text, one.attack, one.sample))
