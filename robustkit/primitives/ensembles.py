"""Ensembles: names that stand for several attacks, run as a cascade.

Each member attacks the images that the members before it did not break. A member has one name in all norms; only its
hyper-parameters may depend on the norm.
"""

# AutoAttack: Croce & Hein 2020, arXiv:2003.01690, with the budgets of the authors' code. Its windows shrink on a
# schedule of 10,000 queries, whatever the budget.
_FAB_T, _SQUARE = "fab-t:steps=100,targets=9", "square:queries=5000,shrink_over=10000"
_LAST = (_FAB_T, _SQUARE)

# The budgets of `standard` were chosen on validation images, where a tenth of the passes of `thorough` leaves the same
# images robust; see bench/README.md.
ENSEMBLES: dict[str, tuple[str, ...]] = {
    "standard": ("apgd-ce:steps=30", "apgd-t:steps=20,targets=3", "square:queries=100"),
    "thorough": ("apgd-ce:steps=100", "apgd-t:steps=100,targets=9", "square:queries=5000"),
    "autoattack": ("apgd-ce:steps=100", "apgd-t:steps=100,targets=9", *_LAST),
    "autoattack-plus": (
        "apgd-ce:steps=100,restarts=5",
        "apgd-dlr:steps=100,restarts=5",
        "fab:steps=100,restarts=5",
        _SQUARE,
        "apgd-t:steps=100,targets=9",
        _FAB_T,
    ),
    "autoattack-rand": ("apgd-ce:steps=100", "apgd-dlr:steps=100"),
}

# Members in a norm where they are others.
IN_NORM: dict[tuple[str, str], tuple[str, ...]] = {
    # Croce & Hein 2021, arXiv:2103.01208: five restarts, five targets.
    ("autoattack", "L1"): ("apgd-ce:steps=100,restarts=5", "apgd-t:steps=100,targets=5", *_LAST),
}


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
