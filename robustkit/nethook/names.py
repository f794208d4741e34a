"""Selects layers and parameters by exact name, glob, regular expression, type, predicate or the module itself."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TypeAlias, TypeGuard, TypeVar

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from robustkit.errors import UserError
from robustkit.nethook.errors import LayerNotFoundError, ParameterNotFoundError

Text: TypeAlias = str | re.Pattern[str]
Choice: TypeAlias = Text | type[nn.Module] | Callable[[str, nn.Module], bool] | nn.Module
Layers: TypeAlias = Choice | Iterable[Choice]
Names: TypeAlias = Text | Iterable[Text]

C = TypeVar("C")

_OF_LAYERS = (
    "Layers are given as a name, glob, compiled regular expression, module class, predicate (name, module) -> bool or "
    "module"
)
_WRAPPERS = (DataParallel, DistributedDataParallel, AveragedModel)


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside DataParallel, DistributedDataParallel, averaged and compiled wrappers."""
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def select(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    """The layers that match, by name, each module once, in order of definition.

    Args:
        model: the network; wrappers around it are stripped and add nothing to the names.
        layers: a dotted name, a glob (its `*` also matches dots), a compiled regular expression that must match the
            whole name, a module class, a predicate `(name, module) -> bool`, a module, or an iterable of these. "" is
            the model itself. Patterns skip what has no `forward`, such as ModuleList, and "*" also the model itself.

    Raises:
        LayerNotFoundError: one of them matches no layer.
        UserError: `layers` is something else.
    """
    root = unwrap(model)
    # A tied module can be selected by each of its names; it is listed under the first that matches.
    named = list(root.named_modules(remove_duplicate=False))
    selected: dict[nn.Module, str] = {}
    choices = _choices(layers, _is_choice, _OF_LAYERS)
    if not choices:
        raise LayerNotFoundError("No layers were given; name at least one, or use '*' for all.")
    for choice in choices:
        matches = list(_matches(named, choice))
        if not matches:
            raise LayerNotFoundError(_not_found("layer", choice, [name for name, _ in named if name]))
        for name, module in matches:
            selected.setdefault(module, name)
    position = {module: number for number, module in enumerate(root.modules())}
    return {selected[module]: module for module in sorted(selected, key=position.__getitem__)}


def has_forward(module: nn.Module) -> bool:
    """Whether a module computes something; a ModuleList does not."""
    return getattr(type(module), "forward", None) is not nn.Module.forward  # a scripted module's raises


def get_module(model: nn.Module, name: str) -> nn.Module:
    """The layer with that dotted name, which may be the second name of a tied layer; "" is the model itself.

    Raises:
        LayerNotFoundError: there is no such layer.
    """
    named: dict[str, nn.Module] = dict(unwrap(model).named_modules(remove_duplicate=False))
    for candidate in (name, _without_prefixes(name)):
        if candidate in named:
            return named[candidate]
    raise LayerNotFoundError(_not_found("layer", name, [each for each in named if each]))


def get_parameter(model: nn.Module, name: str) -> nn.Parameter:
    """The parameter with that dotted name.

    Raises:
        ParameterNotFoundError: there is no such parameter.
    """
    named = dict(unwrap(model).named_parameters(remove_duplicate=False))
    for candidate in (name, _without_prefixes(name)):
        if candidate in named:
            return named[candidate]
    raise ParameterNotFoundError(_not_found("parameter", name, list(named)))


def select_parameters(model: nn.Module, names: Names) -> dict[str, nn.Parameter]:
    """The parameters that match a dotted name, a glob, a regular expression or several of these, each once.

    Raises:
        ParameterNotFoundError: one of them matches no parameter.
        UserError: `names` is something else.
    """
    named = list(unwrap(model).named_parameters(remove_duplicate=False))
    selected: dict[nn.Parameter, str] = {}
    choices = _choices(names, _is_text, "Parameters are given as a name, glob or compiled regular expression")
    if not choices:
        raise ParameterNotFoundError("No parameters were given; name at least one, or use '*' for all.")
    for choice in choices:
        matches = [(name, parameter) for name, parameter in named if name_matches(name, choice)]
        if not matches:
            raise ParameterNotFoundError(_not_found("parameter", choice, [name for name, _ in named]))
        for name, parameter in matches:
            selected.setdefault(parameter, name)
    return {name: parameter for parameter, name in selected.items()}


def _inside(model: nn.Module) -> nn.Module | None:
    # Compiled models are recognised by their only child; importing their class would take seconds.
    if "_orig_mod" in model._modules:
        return nn.Module.get_submodule(model, "_orig_mod")
    # timm's averaged models are recognised by name, because timm may not be installed.
    if isinstance(model, _WRAPPERS) or type(model).__module__.startswith("timm.utils.model_ema"):
        return nn.Module.get_submodule(model, "module")
    return None


def _choices(given: object, is_one: Callable[[object], TypeGuard[C]], kinds: str) -> list[C]:
    """One choice or several as a list; `kinds` begins the error for what is neither."""
    # A Sequential is iterable and a module class callable, but each is one choice.
    choices: list[C] = []
    for choice in [given] if is_one(given) or not isinstance(given, Iterable) else given:
        if not is_one(choice):
            raise UserError(f"{kinds}, or as a list of these, not as {type(choice).__name__}.")
        choices.append(choice)
    return choices


def _is_text(value: object) -> TypeGuard[Text]:
    return isinstance(value, (str, re.Pattern))


def _is_choice(value: object) -> TypeGuard[Choice]:
    return _is_text(value) or callable(value)  # classes and modules are callable


def _matches(named: list[tuple[str, nn.Module]], choice: Choice) -> Iterator[tuple[str, nn.Module]]:
    for name, module in named:
        if isinstance(choice, nn.Module):
            matches = module is choice
        elif isinstance(choice, str) and not _is_glob(choice):
            matches = name_matches(name, choice)
        elif not has_forward(module):
            matches = False
        elif isinstance(choice, (str, re.Pattern)):
            matches = name_matches(name, choice) and (name != "" or choice != "*")
        elif isinstance(choice, type):
            matches = isinstance(module, choice)
        else:
            matches = bool(choice(name, module))
        if matches:
            yield name, module


def name_matches(name: str, choice: Text) -> bool:
    """Whether a layer's name is the one chosen, or fits the glob or pattern."""
    if isinstance(choice, re.Pattern):
        return choice.fullmatch(name) is not None
    return fnmatchcase(name, choice) if _is_glob(choice) else name in (choice, _without_prefixes(choice))


def _is_glob(text: str) -> bool:
    return any(character in text for character in "*?[")


def _without_prefixes(name: str) -> str:
    """The name without the prefixes that wrappers add."""
    parts = name.split(".")
    while parts and parts[0] in ("module", "_orig_mod"):
        parts = parts[1:]
    return ".".join(parts)


def _not_found(kind: str, choice: object, names: list[str]) -> str:
    if isinstance(choice, (str, re.Pattern)):
        text = choice if isinstance(choice, str) else choice.pattern
        near = difflib.get_close_matches(text, names, n=5, cutoff=0)
        verb = "is called" if isinstance(choice, str) and not _is_glob(choice) else "matches"
        hint = f"similar names are {', '.join(map(repr, near))}" if near else f"the model has no {kind}s"
        return f"No {kind} {verb} {text!r}; {hint}."
    what = choice.__name__ if isinstance(choice, type) else f"this {type(choice).__name__}"
    return f"No {kind} of the model matches {what}; model.named_modules() lists all layers."
