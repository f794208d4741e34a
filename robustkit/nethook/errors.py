"""Errors of hooks; each message says how to correct the call."""

from robustkit.errors import UserError


class LayerNotFoundError(UserError, LookupError):
    """No layer of the model fits the name, pattern, type or predicate."""


class ParameterNotFoundError(UserError, LookupError):
    """No parameter of the model fits the name or pattern."""


class UnfiredLayerError(UserError):
    """A chosen layer never ran, or no gradient reached it, while the context was open."""


class StaleActivationError(UserError):
    """A value recorded without a copy was overwritten in place later."""


class CompiledModelError(UserError):
    """The model is compiled, and compiled code ignores hooks that are added later."""


class ScriptedModuleError(UserError):
    """A layer is scripted, and TorchScript calls no Python hooks."""


class ReentrantCheckpointError(UserError):
    """A layer ran under re-entrant checkpointing, where gradients cannot be recorded or edited."""


class ShapeMismatchError(UserError):
    """An edit or a replacement returned another shape or structure than the layer."""
