"""Whether a model's answer depends on what it was asked before.

A model that stores its answers and returns them for similar images repeats each answer bit for bit, so it passes for a
function of its input; every adversarial example then gets the answer to the clean image. Two copies are asked for the
same point, one of them after a point nearby. Only models whose attributes change during a forward pass are copied.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor, nn

from robustkit.classifier.folding import copied
from robustkit.classifier.logit_sizes import sizes
from robustkit.classifier.session import Session
from robustkit.errors import UserError

_MOVE = 0.002  # share of the way to grey: near enough for any store of similar images
_ROUNDING = 1e-5  # of the sizes of the logits
_DEPTH = 3  # an attribute, an object in it, and a list in that
_PARAMETERS, _MODULES = "_parameters", "_modules"


def kept_state(model: nn.Module) -> list[Hashable]:
    """Marks of everything that the modules keep apart from their parameters; others if something was stored or counted.

    A list is equal to an earlier one only while the model still holds what it held then.
    """
    return [
        _mark(value, _DEPTH)
        for module in model.modules()
        for name, value in vars(module).items()
        if name not in (_PARAMETERS, _MODULES)
    ]


def _mark(value: object, depth: int) -> Hashable:
    if isinstance(value, Tensor):
        return id(value), 0 if value.is_inference() else value._version
    if isinstance(value, bool | int | float | str):
        return value
    if depth == 0 or isinstance(value, nn.Module | type | ModuleType):
        return id(value)
    parts = _parts(value)
    return (id(value), *(_mark(part, depth - 1) for part in parts))


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, set | frozenset):
        return (len(value),)
    kept: Mapping[str, object] = getattr(value, "__dict__", {})
    return list(kept.values())


def check_earlier_queries(session: Session, images: Tensor) -> None:
    """Check that copies of the model, if it can be copied, give the same answer with and without an earlier query.

    Args:
        session: of a model that is not randomized, and whose state changes.
        images: `[B, *S]`, for their shape.

    Raises:
        UserError: they do not.
    """
    drawn = torch.Generator("cpu").manual_seed(session.seed)
    noise = torch.rand(images.shape, generator=drawn, device="cpu").to(images)
    nearby = noise + _MOVE * (0.5 - noise)
    try:
        copies = copied(session.reference.model), copied(session.reference.model)
    except Exception:  # a lock, an open file, or a tensor inside a graph cannot be copied; that says nothing
        return
    asked, fresh = (replace(session.reference, model=each) for each in copies)
    asked.forward(noise)
    after, alone = asked.forward(nearby), fresh.forward(nearby)
    if after.shape != alone.shape or bool(((after - alone).abs() > _ROUNDING * sizes(alone)).any()):
        raise UserError(
            "The model's answer for an image depends on the images that it was asked before (it stores answers, or "
            "counts queries), so an attack cannot search and no verdict could be confirmed; make its forward depend on "
            "its input alone."
        )
