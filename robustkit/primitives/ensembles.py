"""Ensembles: names that stand for several attacks, run as a cascade.

Each member attacks the images that the members before it did not break. A member has one name in all norms; only its
hyper-parameters may depend on the norm.
"""

# The budgets of `standard` were chosen on validation images, where a tenth of the passes of `thorough` leaves the same
# images robust; see bench/README.md.
ENSEMBLES: dict[str, tuple[str, ...]] = {
    "standard": ("apgd-ce:steps=30", "apgd-t:steps=20,targets=3", "square:queries=100"),
    "thorough": ("apgd-ce:steps=100", "apgd-t:steps=100,targets=9", "square:queries=5000"),
}

# Members in a norm where they are others.
IN_NORM: dict[tuple[str, str], tuple[str, ...]] = {}


def names() -> list[str]:
    """The names of all ensembles."""
    return list(ENSEMBLES)


def is_ensemble(text: str) -> bool:
    """Whether a specification names an ensemble."""
    return text.strip().lower() in ENSEMBLES


def members(name: str, norm: str) -> tuple[str, ...]:
    """The specifications of an ensemble's members in one norm, in the order in which they attack.

    Args:
        name: as in `names`, in any case.
        norm: "Linf", "L2", "L1"; any other gives the members of Linf, which then say which norms they know.
    """
    name = name.strip().lower()
    return IN_NORM.get((name, norm), ENSEMBLES[name])
