"""Layers and parameters by name: exact, glob, regular expression, type, predicate or the module itself."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from robustkit.nethook.errors import LayerNotFoundError, ParameterNotFoundError

Text: TypeAlias = str | re.Pattern[str]
Choice: TypeAlias = Text | type[nn.Module] | Callable[[str, nn.Module], bool] | nn.Module
Layers: TypeAlias = Choice | Iterable[Choice]
Names: TypeAlias = Text | Iterable[Text]

_WRAPPERS = (DataParallel, DistributedDataParallel, AveragedModel)


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside DataParallel, DistributedDataParallel, averaged and compiled wrappers."""
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def select(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    """The layers that fit, by name, each module once, in order of definition.

    Args:
        model: where to look; wrappers around it are stripped and add nothing to the names.
        layers: a dotted name, a glob (its `*` also matches dots), a compiled regular expression that must match the
            whole name, a module class, a predicate `(name, module) -> bool`, a module, or an iterable of these. "" is
            the model itself. Patterns skip what has no `forward`, such as ModuleList, and "*" also the model itself.

    Raises:
        LayerNotFoundError: one of them fits no layer.
    """
    root = unwrap(model)
    # Both names of a tied module are there to be found; it is listed under the first that fits.
    named = list(root.named_modules(remove_duplicate=False))
    found: dict[nn.Module, str] = {}
    choices = _each(layers)
    if not choices:
        raise LayerNotFoundError("No layers were given; name at least one, or use '*' for all.")
    for choice in choices:
        fitting = list(_fitting(named, choice))
        if not fitting:
            raise LayerNotFoundError(_missing("layer", choice, [name for name, _ in named if name]))
        for name, module in fitting:
            found.setdefault(module, name)
    place = {module: number for number, module in enumerate(root.modules())}
    return {found[module]: module for module in sorted(found, key=place.__getitem__)}


def get_module(model: nn.Module, name: str) -> nn.Module:
    """The layer of that dotted name, also under the second name of a tied one; "" is the model itself.

    Raises:
        LayerNotFoundError: there is none.
    """
    named: dict[str, nn.Module] = dict(unwrap(model).named_modules(remove_duplicate=False))
    for known in (name, _bare(name)):
        if known in named:
            return named[known]
    raise LayerNotFoundError(_missing("layer", name, [known for known in named if known]))


def get_parameter(model: nn.Module, name: str) -> nn.Parameter:
    """The parameter of that dotted name.

    Raises:
        ParameterNotFoundError: there is none.
    """
    named = dict(unwrap(model).named_parameters(remove_duplicate=False))
    for known in (name, _bare(name)):
        if known in named:
            return named[known]
    raise ParameterNotFoundError(_missing("parameter", name, list(named)))


def select_parameters(model: nn.Module, names: Names) -> dict[str, nn.Parameter]:
    """The parameters that fit a dotted name, a glob, a regular expression or several of these, each once.

    Raises:
        ParameterNotFoundError: one of them fits no parameter.
    """
    named = list(unwrap(model).named_parameters(remove_duplicate=False))
    found: dict[nn.Parameter, str] = {}
    for choice in [names] if isinstance(names, (str, re.Pattern)) else list(names):
        fitting = [(name, parameter) for name, parameter in named if _fits(name, choice)]
        if not fitting:
            raise ParameterNotFoundError(_missing("parameter", choice, [name for name, _ in named]))
        for name, parameter in fitting:
            found.setdefault(parameter, name)
    return {name: parameter for parameter, name in found.items()}


def _inside(model: nn.Module) -> nn.Module | None:
    # The class of compiled models takes seconds to import; its one child says as much.
    if "_orig_mod" in model._modules:
        return nn.Module.get_submodule(model, "_orig_mod")
    # timm's averaged models are recognised by name: timm is not needed to run without it.
    if isinstance(model, _WRAPPERS) or type(model).__module__.startswith("timm.utils.model_ema"):
        return nn.Module.get_submodule(model, "module")
    return None


def _each(layers: Layers) -> list[Choice]:
    # A Sequential is iterable and a module class callable; both are meant as one choice.
    if isinstance(layers, (str, re.Pattern, type, nn.Module)) or callable(layers):
        return [layers]
    return list(layers)


def _fitting(named: list[tuple[str, nn.Module]], choice: Choice) -> Iterator[tuple[str, nn.Module]]:
    for name, module in named:
        if isinstance(choice, nn.Module):
            fits = module is choice
        elif isinstance(choice, str) and not _is_glob(choice):
            fits = _fits(name, choice)
        elif getattr(type(module), "forward", None) is nn.Module.forward:
            fits = False
        elif isinstance(choice, (str, re.Pattern)):
            fits = _fits(name, choice) and (name != "" or choice != "*")
        elif isinstance(choice, type):
            fits = isinstance(module, choice)
        else:
            fits = bool(choice(name, module))
        if fits:
            yield name, module


def _fits(name: str, choice: Text) -> bool:
    if isinstance(choice, re.Pattern):
        return choice.fullmatch(name) is not None
    return fnmatchcase(name, choice) if _is_glob(choice) else name in (choice, _bare(choice))


def _is_glob(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _bare(name: str) -> str:
    """A name without the prefixes that wrappers put before it."""
    parts = name.split(".")
    while parts and parts[0] in ("module", "_orig_mod"):
        parts = parts[1:]
    return ".".join(parts)


def _missing(kind: str, choice: object, names: list[str]) -> str:
    if isinstance(choice, (str, re.Pattern)):
        text = choice if isinstance(choice, str) else choice.pattern
        near = difflib.get_close_matches(text, names, n=5, cutoff=0)
        word = "is called" if isinstance(choice, str) and not _is_glob(choice) else "fits"
        hint = f"near are {', '.join(map(repr, near))}" if near else f"the model has no {kind}s"
        return f"No {kind} {word} {text!r}; {hint}."
    what = choice.__name__ if isinstance(choice, type) else f"this {type(choice).__name__}"
    return f"No {kind} of the model fits {what}; list what there is with model.named_modules()."
