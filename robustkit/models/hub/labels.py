"""The labels of a data set found among those of a model by their names: both count their classes in their own order."""

from collections.abc import Sequence


def order_of(labels: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...] | None:
    """For each logit to be returned, the number of the model's logit: first those of `wanted`, then all others.

    None leaves the model's order: a name is missing, twice there, or all stand where they should.
    """
    names = [_plain(label) for label in labels]
    numbers = {name: number for number, name in enumerate(names)}
    asked = [_plain(name) for name in wanted]
    if len(numbers) < len(names) or len(set(asked)) < len(asked) or not numbers.keys() >= {*asked}:
        return None
    first = [numbers[name] for name in asked]
    order = (*first, *(number for number in range(len(names)) if number not in {*first}))
    return None if order == tuple(range(len(names))) else order


def _plain(label: str) -> str:
    """The first of several names, as in "tench, Tinca tinca", without case and spelling of spaces."""
    return " ".join(label.split(",")[0].replace("_", " ").lower().split())
