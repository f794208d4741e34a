"""The classes of a data set found among those of a model by their names: both count them in their own order."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from robustkit.errors import UserError
from robustkit.limits import shortened


def order_of(labels: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...] | None:
    """For each logit to be returned, the number of the model's logit: first those of `wanted`, then all others.

    None leaves the model's order: all names of `wanted` that the model has stand where they should. Names that both
    have equally often, such as the two cranes of ImageNet, are matched in their order, if that is the order of all
    others.

    Raises:
        UserError: the orders differ, and a name may stand for several labels or for none.
    """
    called = _Labels(labels)
    texts = [_spelled(name) for name in wanted]
    asked = Counter(texts)
    found = [called.numbers(name, asked[text]) for name, text in zip(wanted, texts, strict=True)]
    if all(number in each for number, each in enumerate(found) if each):
        return None
    unknown = next((name for name, numbers in zip(wanted, found, strict=True) if not numbers), None)
    if unknown is not None:
        raise UserError(
            f"The model has its classes in another order than the data, and none called {shortened(unknown)!r}; name "
            "the classes of the data as the model does."
        )
    turn: Counter[str] = Counter()
    first = []
    for name, text, numbers in zip(wanted, texts, found, strict=True):
        if len(numbers) != asked[text]:
            raise _ambiguous(name)
        first.append(numbers[turn[text]])
        turn[text] += 1
    chosen = {*first}
    repeated = next((name for name, text in zip(wanted, texts, strict=True) if asked[text] > 1), None)
    if repeated is not None and first != sorted(chosen):
        raise _ambiguous(repeated)
    if len(chosen) < len(first):
        raise _ambiguous(next(name for name, number in zip(wanted, first, strict=True) if first.count(number) > 1))
    return (*first, *(number for number in range(len(labels)) if number not in chosen))


def partly_named(labels: Sequence[str], wanted: Sequence[str]) -> str:
    """A warning where the model has labels for some classes of the data only; empty where for all of them or none.

    The others are judged in the model's order: they may be called otherwise there, or be other classes.
    """
    called = _Labels(labels)
    others = [number for number, name in enumerate(wanted) if not called.numbers(name, 1)]
    if len(others) in (0, len(wanted)) or others[0] >= len(labels):
        return ""
    first = others[0]
    return (
        f"{len(others)} of the {len(wanted)} classes of the data are not among the model's labels; "
        f"{shortened(wanted[first])!r} is taken for its {shortened(labels[first])!r}. If these differ, the accuracy is "
        "wrong: name the classes of the data as the model does"
    )


class _Labels:
    """The labels of a model, found by their text or by the first of their names, as in "tench, Tinca tinca"."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.by_text: dict[str, list[int]] = defaultdict(list)
        self.by_first: dict[str, list[int]] = defaultdict(list)
        for number, label in enumerate(labels):
            self.by_text[_spelled(label)].append(number)
            self.by_first[_spelled(label.split(",")[0])].append(number)

    def numbers(self, name: str, times: int) -> list[int]:
        """Those of the labels with this text, if there are that many, else of those with its first name."""
        same = self.by_text.get(_spelled(name), [])
        return same if len(same) == times else self.by_first.get(_spelled(name.split(",")[0]), [])


def _ambiguous(name: str) -> UserError:
    return UserError(
        f"The model has its classes in another order than the data, and {shortened(name)!r} may be several of them; "
        "name the classes of the data as the model does, in full."
    )


def _spelled(text: str) -> str:
    """Without case and spelling of spaces."""
    return " ".join(text.replace("_", " ").lower().split())
