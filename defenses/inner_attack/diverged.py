"""A training whose numbers are no numbers any more."""

from robustkit.errors import UserError


class Diverged(UserError):  # noqa: N818  # what became of the training, not of the program
    """A loss or a gradient is NaN or infinite; what was kept of the training is intact."""
