"""Threat models out of the texts that a caller gives: norms and radii."""

from collections.abc import Sequence
from typing import NamedTuple

from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.primitives.ball import NormName
from robustkit.primitives.mask import Mask, masked_name
from robustkit.primitives.threat import MINIMUM, exact, is_minimum, norm_name, radius

_EXAMPLE = {
    "Linf": "8/255", "L2": "0.5", "L1": "12", "L0": "10", "patch": "5", "frame": "2",
    "spatial": "30", "rotation": "30", "translation": "3", "flow": "1", "color": "0.5",
    "recolor": "0.06", "recolor_rgb": "0.06", "lpips": "0.5",
}  # fmt: skip


class Threat(NamedTuple):
    """One ball: its texts are what reports show, its number what attacks use.

    The text "minimum" has the number infinity: the nearest error is looked for, whatever its distance.
    """

    norm: str  # with the label of the mask, if there is one: "Linf-in-mask-0123456789ab"
    eps_text: str
    eps: float
    ball_name: NormName  # the norm's own name
    mask: Mask | None = None


def threats_of(
    norms: Sequence[str], radii: Sequence[str], usual: Sequence[tuple[str, str]], mask: Mask | None = None
) -> list[Threat]:
    """The threat models of a request, ascending within each norm.

    Args:
        norms: names; empty means those that are usual for the data set.
        radii: texts, "8/255" or "L2:0.5"; empty means the usual ones.
        usual: (norm, eps) pairs of the data set.
        mask: the pixels that may change; None for all.

    Raises:
        UserError: a radius is out of range, or it is not clear which norm it belongs to.
    """
    pairs = [_pair(text) for text in radii]
    named = [norm_name(norm) for norm in norms]
    if not named:
        free = [text for norm, text in pairs if norm is None]
        named = [norm for norm, _ in pairs if norm is not None] + ([norm_name(usual[0][0])] if free else [])
    if not pairs:
        pairs = [(norm_name(norm), text) for norm, text in usual if not named or norm_name(norm) in named]
        named = named or [norm for norm, _ in pairs if norm is not None]
    for other, text in pairs:
        if other is not None and other not in named:
            raise UserError(f"The radius {other}:{text} is for a norm that --norm does not name; add --norm {other}.")
    if any(norm is None and text != MINIMUM for norm, text in pairs) and len(set(named)) > 1:
        raise UserError("With several norms each radius names its own: write --eps Linf:8/255 --eps L2:0.5.")
    threats = []
    for norm in dict.fromkeys(named):
        # Without a norm, "minimum" is meant for all of them; a number has a unit, so it cannot be.
        own = [text for given, text in pairs if given in (norm, None)]
        if not own:
            raise UserError(
                f"There is no radius for {norm}; add one, for example --eps {norm}:{_EXAMPLE.get(norm, 1)}."
            )
        unique = {radius(norm, text): text for text in reversed(own)}
        threats += [Threat(masked_name(norm, mask), unique[value], value, norm, mask) for value in sorted(unique)]
    return threats


def _pair(text: str) -> tuple[NormName | None, str]:
    norm, colon, eps = text.strip().rpartition(":")
    if is_minimum(eps):
        return (norm_name(norm) if colon else None), MINIMUM
    try:
        exact(eps)
    except UserError:
        raise UserError(
            f"{shortened(text)!r} is not a radius; write a number, a fraction of whole numbers such as 8/255, or "
            "L2:0.5, or minimum."
        ) from None
    return (norm_name(norm) if colon else None), eps
