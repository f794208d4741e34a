"""Checks for layers whose hooks would never be called, made before hooks are installed."""

import sys
from collections.abc import Mapping
from types import FunctionType

from torch import nn
from torch.jit import ScriptModule
from torch.utils.checkpoint import CheckpointFunction

from robustkit.nethook.errors import CompiledModelError, ReentrantCheckpointError, ScriptedModuleError
from robustkit.nethook.names import has_forward, unwrap


def check_hookable(model: nn.Module, layers: Mapping[str, nn.Module]) -> None:
    """Refuse layers whose hooks would never be called.

    Raises:
        CompiledModelError: a layer is inside a compiled module, which ignores hooks that are added later, unless it
            runs as it was before, as inside `torch.compiler.set_stance("force_eager")`.
        ScriptedModuleError: a layer is scripted.
    """
    wrappers = _wrappers(model)
    for module in [*wrappers, *unwrap(model).modules()]:
        if is_compiled(module) and not _own_code_runs():
            inside = set(module.modules())
            for name, layer in layers.items():
                if layer in inside:
                    fix = (
                        "run the model that robustkit.nethook.unwrap(model) returns" if module in wrappers
                        else "take the model from before its compilation"
                    )  # fmt: skip
                    raise CompiledModelError(
                        f"{_called(name)} is compiled and would ignore hooks; {fix}, or compile after the hooks are "
                        "removed."
                    )
    for name, layer in layers.items():
        if isinstance(layer, ScriptModule):
            raise ScriptedModuleError(
                f"{_called(name)} is scripted and calls no Python hooks; "
                f"{'choose the layer around it, or ' if name else ''}use the model before torch.jit.script."
            )


def _called(name: str) -> str:
    return f"Layer {name!r}" if name else "The model"


def check_checkpoint(name: str) -> None:
    """Refuse a layer that runs inside a re-entrant checkpoint; to be called while gradients are off.

    The first run of such a layer has no graph, and the graph of the second run, in backward, is another one.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _REENTRANT:
            raise ReentrantCheckpointError(
                f"Layer {name!r} runs under re-entrant checkpointing, where no gradient can be followed; call "
                "torch.utils.checkpoint.checkpoint with use_reentrant=False."
            )
        frame = frame.f_back  # type: ignore[assignment]


def why_silent(model: nn.Module, name: str) -> str:
    """The likely reason why a layer did not run and how to correct it, as the second half of a sentence."""
    named = dict(unwrap(model).named_modules(remove_duplicate=False))
    parents = [named[".".join(name.split(".")[:depth])] for depth in range(name.count(".") + 1)] if name else []
    parent = parents[-1] if parents else None
    if any(isinstance(module, ScriptModule) for module in parents):
        return "it lies inside a scripted module, which calls no Python hooks"
    if parent is not None and vars(parent).get("fused_attn") is True:
        return "fused attention does not call it; put the model into robustkit.nethook.expose_attention(model)"
    if isinstance(parent, nn.MultiheadAttention):
        return (
            "MultiheadAttention uses its weights without calling it; choose the MultiheadAttention itself, or put the "
            "model into robustkit.nethook.expose_attention(model)"
        )
    if name in named and not has_forward(named[name]):
        return "it has no forward of its own; choose the layers inside"
    return "the model was not run, does not call it, or calls its forward() directly, which skips hooks"


_REENTRANT = CheckpointFunction.forward.__code__


def _wrappers(model: nn.Module) -> list[nn.Module]:
    """The wrappers around a network that `unwrap` removes; each has one child."""
    wrappers: list[nn.Module] = []
    inner = unwrap(model)
    while model is not inner:
        wrappers.append(model)
        model = next(model.children())
    return wrappers


def runs_compiled_code(model: nn.Module) -> bool:
    """Whether a module is compiled by `torch.compile`, or its forward is, or names a function that is."""
    return any(is_compiled(module) or _names_compiled_functions(module) for module in model.modules())


def _names_compiled_functions(module: nn.Module) -> bool:
    kind = type(module)
    forward = getattr(kind, "forward", None)
    names = getattr(getattr(forward, "__code__", None), "co_names", ())
    around = getattr(forward, "__globals__", {})
    named = (each for name in names for each in (around.get(name), getattr(kind, name, None)))
    return any(_is_compiled_function(each) for each in (forward, *named))


def _own_code_runs() -> bool:
    """Whether what is compiled runs as it was before."""
    # torch does not tell its stance in public.
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return frames is not None and frames._stance.stance == "force_eager"


def _is_compiled_function(value: object) -> bool:
    return isinstance(value, FunctionType) and hasattr(value, "_torchdynamo_orig_callable")


def is_compiled(module: nn.Module) -> bool:
    """Whether a module itself is compiled."""
    # `model = torch.compile(model)`, `model.compile()`, and `model.forward = torch.compile(model.forward)`.
    return (
        "_orig_mod" in module._modules
        or getattr(module, "_compiled_call_impl", None) is not None
        or _is_compiled_function(vars(module).get("forward"))
    )
