"""The error of a training whose loss or gradient is not finite."""

from robustkit.errors import UserError


class Diverged(UserError):  # noqa: N818  # the state of the training, not a fault of the program
    """A loss or a gradient is NaN or infinite; the checkpoint on disk is intact."""
