"""Ensembles: names that stand for several attacks, run as a cascade.

Each member attacks the images that the members before it did not break and that its threshold lets through.
"""

from robustkit.errors import UserError
from robustkit.primitives.ensemble_versions import ALIASES as ALIASES
from robustkit.primitives.ensemble_versions import ENSEMBLES as ENSEMBLES
from robustkit.primitives.ensemble_versions import IN_NORM as IN_NORM
from robustkit.primitives.stage import Stage
from robustkit.primitives.threat import attacks_for

# Names of earlier versions, one of which means something stronger elsewhere.
_GONE = ("standard", "thorough")


def names() -> list[str]:
    """The names of all ensembles, aliases first."""
    return [*ALIASES, *ENSEMBLES]


def check_norm(text: str, norm: str) -> None:
    """Check that an ensemble is made for a threat model.

    Raises:
        UserError: it is not; the sentence names attacks that are.
    """
    suited = attacks_for(norm)
    if suited:
        raise UserError(
            f"The ensemble {text.strip().lower()} has no {norm} form; name attacks (-a, repeatable): {suited}."
        )


def is_ensemble(text: str) -> bool:
    """Whether a specification names an ensemble."""
    return name_of(text) in ENSEMBLES


def check_current(name: str) -> None:
    """Check that a name is none that earlier versions gave to an ensemble.

    Raises:
        UserError: it is.
    """
    if name in _GONE:
        raise UserError(
            f"The ensemble {name!r} was removed; take default, which is stronger and cheaper, or autoattack, which is "
            "the standard version of AutoAttack."
        )


def name_of(text: str) -> str:
    """The name of an ensemble that `text` names or is an alias of; any other text in lower case."""
    name = text.strip().lower()
    return ALIASES.get(name, name)


def members(name: str, norm: str) -> tuple[str, ...]:
    """The specifications of an ensemble's members in one norm, in the order in which they attack."""
    return tuple(stage.specification for stage in stages(name, norm))


def stages(name: str, norm: str) -> tuple[Stage, ...]:
    """The members of an ensemble in one norm, in the order in which they attack.

    Args:
        name: as in `names`, in any case.
        norm: "Linf", "L2", "L1"; any other gives the members of Linf, which then say which norms they know.
    """
    name = name_of(name)
    given = IN_NORM.get((name, norm), ENSEMBLES[name])
    return tuple(each if isinstance(each, Stage) else Stage(each, each.partition(":")[0]) for each in given)
