"""Numbers in as many digits as show on which side of a limit they are."""

from collections.abc import Callable

_MOST = 9  # digits


def in_telling_digits(
    written: Callable[[int], str], is_beyond: Callable[[float], bool], *, beyond: bool, least: int
) -> str:
    """A number in the fewest digits that show on which side of a limit it is; in nine where none do.

    Args:
        written: the number in so many digits.
        is_beyond: on which side of the limit a number is, as it is shown.
        beyond: on which side this one is.
        least: digits.
    """
    texts = map(written, range(least, _MOST))
    return next((text for text in texts if is_beyond(float(text)) == beyond), written(_MOST))
