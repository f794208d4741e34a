"""When a gradient is believed: what it predicted against what happened."""

_MISSED = 2  # a gradient that predicts less than half of what happens is not believed
_BENT, _BACKFIRES = 0.25, -0.5
_HIDDEN = 0.1


def believable(predicted: float, obtained: float, unseen: float = 0.0) -> bool:
    """Whether a gradient may be believed: it predicts a rise, does not miss most of it, and hides nothing that matters.

    Args:
        predicted: the rise, as the gradient says.
        obtained: what following it gains.
        unseen: what the values do, either way, at which the gradient is zero.
    """
    return predicted > 0 and obtained <= _MISSED * predicted and not hidden(predicted, unseen)


def hidden(predicted: float, unseen: float) -> bool:
    """Whether values at which the gradient is zero move more than a tenth of what it predicts, if that is anything."""
    return predicted > 0 and unseen > _HIDDEN * predicted


def bent(predicted: float, obtained: float) -> bool:
    """Whether following a gradient obtained less than a quarter of what it predicted: nothing is linear there."""
    return obtained < _BENT * predicted


def backfires(predicted: float, obtained: float) -> bool:
    """Whether following a gradient loses more than half of what it predicted to gain."""
    return obtained < _BACKFIRES * predicted
