"""Models that bring their own weights: files of whole networks, folders of the hub, and servers."""

from robustkit.black_box.address import is_url, server_address
from robustkit.errors import UserError
from robustkit.limits import shortened

from .checkpoint import is_checkpoint
from .sources import ModelRequest


def require_own_weights(request: ModelRequest, train: bool, *, or_checkpoint: bool = False) -> None:
    """Check that a model that brings its weights is to get no others.

    Args:
        request: for the model.
        train: whether it is to be trained.
        or_checkpoint: whether a checkpoint file may replace its weights.

    Raises:
        UserError: it is to get others.
    """
    weights = request.weights
    if train or (weights is not None and not (or_checkpoint and is_checkpoint(weights))):
        raise own_weights(request.name)


def own_weights(name: str) -> UserError:
    """The error for a model that is to get other weights than its own."""
    return UserError(
        f"{shown_name(name)} has weights of its own; leave out --weights, --train, --retrain and --random-init."
    )


def shown_name(name: str) -> str:
    """The name of a model in errors; the query of an address is left out."""
    return shortened(server_address(name).place if is_url(name) else name)
