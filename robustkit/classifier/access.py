"""What attacks may see of a model that only answers: no gradients, and of some models no scores."""

from collections.abc import Iterable

from torch import nn

from robustkit.black_box.model import BlackBox
from robustkit.errors import UserError
from robustkit.models.preprocessing import network_in
from robustkit.models.programs import is_from_file
from robustkit.nethook import select
from robustkit.primitives.protocol import Attack


def black_box_in(model: nn.Module) -> BlackBox | None:
    """The black box that a model is, with or without preprocessing before it; None for networks."""
    network = network_in(model)
    return network if isinstance(network, BlackBox) else None


def is_metered(model: nn.Module) -> bool:
    """Whether every query of a model is a request to a server."""
    box = black_box_in(model)
    return box is not None and box.metered


def only_labels(model: nn.Module) -> bool:
    """Whether a model answers with labels only."""
    box = black_box_in(model)
    return box is not None and box.gives == "labels"


def require_access(name: str, model: nn.Module, attack: Attack, replaced: Iterable[str] = ()) -> None:
    """Check that an attack can query a model.

    Args:
        name: of the model, for errors.
        model: that is queried.
        attack: who asks.
        replaced: layers whose gradients `bpda` replaces.

    Raises:
        UserError: it needs gradients, or scores, that the model does not give, or lacks such a layer.
    """
    box = black_box_in(model)
    if box is None:
        if attack.sees == "gradients":
            require_layers(name, model, replaced)
        return
    kind = type(attack).__name__
    if attack.sees == "gradients":
        raise UserError(
            f"{name} gives no gradients, which {kind} needs; take attacks by scores or labels (-a square, -a "
            "hopskipjump), or transfer from a network of yours: --surrogate NAME."
        )
    if attack.sees == "logits" and only_labels(model):
        raise UserError(
            f"{name} answers with labels only, and {kind} needs scores; take attacks by labels (-a hopskipjump, -a "
            "rays), or transfer from a network of yours: --surrogate NAME."
        )


def require_layers(name: str, model: nn.Module, layers: Iterable[str]) -> None:
    """Check that a model has the layers whose gradients `bpda` replaces.

    Args:
        name: of the model, for errors.
        model: whose gradients are asked for.
        layers: by name or glob.

    Raises:
        UserError: there is no such layer, or the model is a saved program, which has none.
    """
    network = network_in(model)
    for layer in layers:
        if layer and is_from_file(network):
            raise UserError(
                f"{name} was saved as a program, whose layers cannot be changed, so bpda cannot replace the gradient "
                f"of {layer!r}; attack the module that it was saved from: --model FILE.py:NAME --weights FILE."
            )
        select(network, layer)


def require_options(
    name: str, model: nn.Module, other_gradients: bool, smoothed: bool, bounds: tuple[float, float], rejects: bool
) -> None:
    """Refuse what no black box, or no smoothed model can do.

    Raises:
        UserError: other gradients are asked for, it is to be smoothed or rejects, or a server gets other pixels than
            [0, 1].
    """
    if rejects and smoothed:
        raise UserError(f"{name} rejects images, and a smoothed model abstains in a way of its own; leave one out.")
    box = black_box_in(model)
    if box is None:
        return
    if other_gradients:
        raise UserError(f"{name} has no gradients that others could replace; leave out bpda and straight_through.")
    if smoothed:
        raise UserError(f"{name} cannot be smoothed: it takes thousands of queries for each image; leave it out.")
    if rejects:
        raise UserError(f"{name} is a black box, and only networks are judged with a rejection; leave out rejects.")
    if box.metered and bounds != (0, 1):
        raise UserError(f"{name} gets image files, whose pixels lie in [0, 1]; leave out bounds.")
