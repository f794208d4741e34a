"""What goes wrong with hooks, as errors whose sentence names the fix."""

from robustkit.errors import UserError


class LayerNotFoundError(UserError, LookupError):
    """No layer of the model fits the name, pattern, type or predicate."""


class ParameterNotFoundError(UserError, LookupError):
    """No parameter of the model fits the name or pattern."""


class UnfiredLayerError(UserError):
    """A chosen layer, or a gradient through it, never came by while the context was open."""


class StaleActivationError(UserError):
    """A value kept without a copy was overwritten in place after it was kept."""


class CompiledModelError(UserError):
    """The model is compiled, and compiled code calls no hooks that came later."""


class ScriptedModuleError(UserError):
    """A layer is scripted, and TorchScript calls no Python hooks."""


class ReentrantCheckpointError(UserError):
    """A layer ran under re-entrant checkpointing, where no gradient can be followed."""


class ShapeMismatchError(UserError):
    """An edit or a surrogate returned another shape or structure than it was given."""
