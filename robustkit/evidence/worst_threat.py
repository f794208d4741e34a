"""Which threat a warning is about, where several show the sign."""

from collections.abc import Mapping


def worst_threat(extents: Mapping[str, float]) -> str | None:
    """The threat where the sign shows most, the first of equals; None if it shows at none.

    Args:
        extents: how much it shows, by "Linf 0.1", at the threats that show it.
    """
    return max(extents, key=extents.__getitem__, default=None)
