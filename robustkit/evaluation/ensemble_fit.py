"""Whether AutoAttack suits a model: the flags that its authors raise about randomness and the number of classes."""

from collections.abc import Iterable

_PLAIN = ("autoattack", "autoattack-plus")


def misfits(ensembles: Iterable[str], *, randomized: bool, classes: int) -> list[str]:
    """Sentences about ensembles that are not made for a model.

    Args:
        ensembles: names of the columns of a plan.
        randomized: whether the model is.
        classes: how many it has.
    """
    names = set(ensembles)
    plain = [name for name in _PLAIN if name in names]
    rand = "autoattack-rand" in names
    found = []
    if randomized and plain and not rand:
        found.append(f"it is randomized, for which {plain[0]} is not made; add --attack autoattack-rand.")
    if not randomized and rand and not plain:
        found.append(
            "autoattack-rand leaves out FAB and Square because it is made for randomized models, and this one is not; "
            "take --attack autoattack."
        )
    if classes < 4 and (plain or rand):
        both = "DLR needs three and its targeted form four, so both are"
        form = both if classes < 3 else "targeted DLR needs four, so it is"
        found.append(f"it has {classes} classes; {form} replaced by the margin.")
    return found
