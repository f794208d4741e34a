"""Threat models by name: the ball of a norm's name and a radius, as texts or numbers."""

import contextlib
import math
import re
from fractions import Fraction
from typing import Final

from robustkit import limits
from robustkit.errors import UserError, unknown
from robustkit.limits import shortened
from robustkit.primitives.ball import NORMS, Ball, NormName
from robustkit.primitives.color_ball import Color
from robustkit.primitives.local_balls import Frame, Patch
from robustkit.primitives.lpips_ball import Lpips
from robustkit.primitives.mask import unmasked
from robustkit.primitives.norm_balls import L0, L1, L2, Linf
from robustkit.primitives.recolor_balls import Recolor, RecolorRGB
from robustkit.primitives.spatial_balls import Flow, Rotation, Spatial, Translation

MINIMUM: Final = "minimum"  # in place of a radius: how far away the nearest error is

# What `Fraction` accepts, in ASCII; nan and inf are among the words that it refuses.
_NUMBER = re.compile(r"[+-]?([0-9]+(/[0-9]+)?|([0-9]+\.[0-9]*|\.?[0-9]+)([eE](?P<exponent>[+-]?[0-9]{1,9}))?)")
_BALLS: dict[str, type[Ball]] = {
    "Linf": Linf, "L2": L2, "L1": L1, "L0": L0,
    "patch": Patch, "frame": Frame,
    "rotation": Rotation, "translation": Translation, "spatial": Spatial, "flow": Flow,
    "color": Color,
    "recolor": Recolor, "recolor_rgb": RecolorRGB,
    "lpips": Lpips,
}  # fmt: skip
THREATS = tuple(_BALLS)
# What a radius counts, where it is a whole number.
_COUNTS = {
    "L0": "An L0 radius counts changed values",
    "patch": "The radius of a patch is its side in pixels",
    "frame": "The radius of a frame is its width in pixels",
}


def ball(norm: str, eps: float | str | Fraction) -> Ball:
    """The ball of a norm's name and a radius; `eps` may be a text such as "8/255".

    Raises:
        UserError: an unknown norm, or a radius that is negative, not a number or in the wrong unit.
    """
    return _BALLS[norm_name(norm)](radius(norm_name(norm), eps))


def canonical(name: str) -> str:
    """The name of a norm in any case, with the label of its mask if it has one, as evidence has it."""
    return norm_name(unmasked(name)) + name[len(unmasked(name)) :]


def norm_name(text: str) -> NormName:
    """`"linf"`, `"l2"`, `"rotation"`, ... in any case, as the field writes it."""
    for name in THREATS:
        if text.lower() == name.lower():
            return name
    raise unknown("norm", text, THREATS)


def attacks_for(norm: str) -> str:
    """The attacks that are made for a threat, in words; "" for Linf, L2 and L1, for which ensembles are made, too."""
    return _BALLS[norm_name(norm)].attacks


def is_rendered(norm: str) -> bool:
    """Whether a threat changes images by parameters, so that distances between images do not bound it."""
    return _BALLS[norm_name(norm)].renders


def measured_in_images(norm: str) -> bool:
    """Whether two images alone say their distance in a threat: it is not one of parameters, nor of features."""
    kind = _BALLS[norm_name(norm)]
    return not kind.renders and not kind.needs_network


def needs_network(norm: str) -> bool:
    """Whether distances in a threat are those of a network's features."""
    return _BALLS[norm_name(norm)].needs_network


def require_norm(norm: str, what: str) -> str:
    """The name of a norm.

    Raises:
        UserError: it is another threat, which `what` cannot do.
    """
    if norm_name(norm) not in NORMS:
        raise UserError(f"{what} needs a norm ({', '.join(NORMS)}), and {norm_name(norm)} is not one.")
    return norm_name(norm)


def radius(norm: NormName, eps: float | str | Fraction) -> float:
    """The radius as a number, checked: texts are exact fractions ("8/255"), Linf radii at most 1.

    The text "minimum" is infinity: the ball holds every image, and the distance of the nearest error is what counts.
    """
    if is_minimum(eps):
        if norm not in NORMS:
            raise UserError(
                f"The threat {norm} needs a radius: the nearest adversarial example is looked for in "
                f"{', '.join(NORMS)} only, as distances are reported in norms; give several radii instead of the "
                "minimum."
            )
        return math.inf
    try:
        value = float(exact(eps)) if isinstance(eps, str) else _number(eps)
    except OverflowError:
        raise UserError("A radius must be a number that a float can hold; check eps.") from None
    if not math.isfinite(value) or value < 0:
        raise UserError(f"A radius must be zero or more and finite; eps is {eps}.")
    if value > 1e9:
        raise UserError(f"A ball of radius {eps} holds every possible image; check the unit of eps.")
    if value > _BALLS[norm].largest:
        raise UserError(f"A {norm} radius is at most {_BALLS[norm].largest:g} {_BALLS[norm].measure}, not {eps}.")
    if norm == "Linf" and value > 1:
        hint = f"did you mean {eps}/255?" if value <= 255 else "divide by the range of your pixels."
        raise UserError(f"Linf radii are in units of pixels that lie in [0, 1], so eps is at most 1, not {eps}; {hint}")
    if norm in _COUNTS and value != int(value):
        raise UserError(f"{_COUNTS[norm]}, so eps must be a whole number, not {eps}.")
    return value


def radius_under(name: str, eps: float | str | Fraction) -> float:
    """`radius` by a norm's name as evidence has it, with the label of a mask or without."""
    return radius(norm_name(unmasked(name)), eps)


def _number(eps: object) -> float:
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(eps, bool):
            return float(eps)  # type: ignore[arg-type]
    raise UserError(
        f"eps is one radius, such as 0.1 or '8/255', not a {type(eps).__name__}; robustkit.evaluate takes several."
    )


def is_minimum(eps: float | str | Fraction) -> bool:
    """Whether a radius asks for the distance of the nearest error."""
    return isinstance(eps, str) and eps.strip().lower() == MINIMUM


def exact(text: str) -> Fraction:
    """The number that a text such as "8/255", "0.5" or "1e-3" stands for.

    Raises:
        UserError: it is no such text, or has more digits than any radius needs.
    """
    parts = _NUMBER.fullmatch(text.strip())
    if parts is None or len(text) > limits.DIGITS or abs(int(parts["exponent"] or 0)) > limits.EXPONENT:
        raise UserError(
            f"{shortened(text)!r} is not a radius; write a number or a fraction of whole numbers, such as 8/255."
        )
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise UserError(f"{text!r} is not a radius; write a number or a fraction such as 8/255.") from None
