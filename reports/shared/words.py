"""Numbers as text: the same percentage, interval and threat in the terminal and on the page."""

import math
from typing import Final

from robustkit.host.text import printable as printable
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import is_minimum
from robustkit.statistics.resolution import LEVEL
from robustkit.statistics.telling_digits import in_telling_digits

DASH: Final = "\N{EN DASH}"
UNKNOWN: Final = DASH
MINUS: Final = "\N{MINUS SIGN}"
TIMES: Final = "\N{MULTIPLICATION SIGN}"
PARTS: Final = 10**6  # a mean of shares is written as so many parts


def percent(k: int, n: int) -> str:
    """`k / n` as "87.3 %"; "0.0 %" and "100.0 %" only where k is 0 or n."""
    if n == 0:
        return UNKNOWN
    value = 100 * k / n
    for digits in range(1, 7):
        text = f"{value:.{digits}f}"
        if k in (0, n) or float(text) not in (0.0, 100.0):
            break
    return f"{text} %"


def interval(low: float, high: float, k: int, n: int) -> str:
    """A 95 % interval as "84.1 to 89.9 %" with a dash; one-sided where k is 0 or n: "≤ 0.73 %", "≥ 99.27 %".

    With further decimals where the share would else lie outside.
    """
    if n == 0 or math.isnan(low) or math.isnan(high):
        return UNKNOWN
    if k == 0:
        return f"≤ {_bound(high)} %"
    if k == n:
        return f"≥ {_bound(low)} %"
    for digits in range(1, 7):
        ends = [f"{100 * end:.{digits}f}" for end in (low, high)]
        if float(ends[0]) <= 100 * k / n <= float(ends[1]):
            break
    return f"{DASH.join(ends)} %"


def mean_percent(mean: float) -> str:
    """`percent` of a mean of shares, which is no count."""
    return percent(round(mean * PARTS), PARTS)


def mean_interval(low: float, high: float, mean: float) -> str:
    """`interval` of a mean of shares, which is no count."""
    return interval(low, high, round(mean * PARTS), PARTS)


def p_value(value: float) -> str:
    """A p-value with three decimals; with more where it would else look like the level of 5 %."""
    if value < 0.001:
        return "< 0.001"
    return in_telling_digits(
        lambda digits: f"{value:.{digits}f}", lambda shown: shown < LEVEL, beyond=value < LEVEL, least=3
    )


def signed_points(difference: float) -> str:
    """A difference of shares in points, as "+3.2"; "0.0" has no sign; a dash for NaN."""
    if math.isnan(difference):
        return DASH
    text = f"{100 * difference:+.1f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def in_ascii(text: str) -> str:
    """An interval for a pipe, whose encoding may have no other signs."""
    return (
        text.replace("\N{LESS-THAN OR EQUAL TO}", "<=").replace("\N{GREATER-THAN OR EQUAL TO}", ">=").replace(DASH, "-")
    )


def _bound(share: float) -> str:
    # Near 0 and 100 % the second decimal differs between 500 and 1000 images; elsewhere it is noise.
    return f"{100 * share:.2f}" if min(share, 1 - share) < 0.1 else f"{100 * share:.1f}"


def per_image(passes: int, images: int) -> str:
    """Passes per image, as "20.0"; without the decimal from 100 on."""
    if images == 0:
        return UNKNOWN
    if passes == 0:
        return "0"
    mean = passes / images
    return f"{mean:.1f}" if mean < 100 else f"{mean:,.0f}"


def in_plain_words(norm: str, eps_text: str) -> str:
    """What an attacker may change, for readers who do not know norms."""
    plain = unmasked(norm)
    if plain != norm:
        return f"{in_plain_words(plain, eps_text)},{norm[len(plain) :].replace('-', ' ', 2)} and nowhere else"
    if is_minimum(eps_text):
        return f"when the image may change by any distance in {norm}, and the nearest adversarial example is looked for"
    everywhere = "the same way at every pixel"
    allowed = {
        "Linf": f"when every pixel value may move by up to {eps_text}",
        "L2": f"when the whole image may move by a Euclidean distance of up to {eps_text}",
        "L1": f"when the changes of all pixel values may add up to {eps_text}",
        "L0": f"when up to {eps_text} pixel values may change",
        "patch": f"when all pixels of one square of {eps_text} x {eps_text} may change, wherever it lies",
        "frame": f"when all pixels of a frame of width {eps_text} along the border may change",
        "rotation": f"when the image may be rotated by up to {eps_text} degrees",
        "translation": f"when the image may be shifted by up to {eps_text} pixels",
        "spatial": f"when the image may be rotated by up to {eps_text} degrees and shifted by a tenth as many pixels",
        "flow": f"when every pixel may be fetched from up to {eps_text} pixels away",
        "color": f"when hue, saturation, brightness and contrast may change by {eps_text} times their usual ranges",
        "recolor": f"when colours may move by up to {eps_text} of the range of each CIELUV channel, before they are "
        f"cut to those that RGB has, {everywhere}",
        "recolor_rgb": f"when colours may move by up to {eps_text} of the range of red, green and blue, {everywhere}",
        "lpips": f"when the features of the image may move by an LPIPS distance, without learned weights, of up to "
        f"{eps_text}",
    }
    return allowed.get(norm, f"within {norm} {eps_text}")


def radius_axis(norm: str) -> str:
    """The label of an axis of radii."""
    lengths = {"patch": "side of the patch, pixels", "frame": "width of the frame, pixels"}
    return lengths.get(norm, f"radius ({norm})")


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with the minus sign that is as wide as a digit."""
    return f"{100 * difference:.1f}".replace("-0.0", "0.0").replace("-", MINUS)


def point_range(low: float, high: float) -> str:
    """An interval of a difference in percentage points."""
    return f"{points(low)} to {points(high)}"
