"""The graph of a program that `torch.export` saved, run operator by operator.

torch's own loader unpickles objects and evaluates texts of the file, which could run any code. Here the file is data: a
list of operators of torch, each looked up by its name among those that compute with tensors.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.limits import shortened

Op = Callable[..., Any]

_LIBRARIES = ("aten", "torchvision")
# Operators that do more than compute: on files, on the terminal, on torch's generator, on other tensors' gradients.
_NOT_OF_NETWORKS = (
    "from_file", "save", "_print", "warn", "manual_seed", "seed", "set_data", "backward", "_backward", "requires_grad_",
)  # fmt: skip
_OF_PYTHON = "add sub mul floordiv truediv mod neg getitem eq ne lt le gt ge"
_ON_NUMBERS: dict[str, Op] = {
    **{f"_operator.{name}": getattr(operator, name) for name in _OF_PYTHON.split()},
    **{f"torch.{name}": getattr(torch, name) for name in ("sym_max", "sym_min", "sym_float", "sym_int", "sym_not")},
}
# The numbers of torch._export.serde.schema, which a version of the format never changes.
DTYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16, 7: torch.float32,
    8: torch.float64, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip
_LAYOUTS = {7: torch.strided}
_MEMORY_FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}
_NUMBERS = ("int", "float", "bool", "string")
_PLAIN = (*(f"as_{kind}{many}" for kind in _NUMBERS for many in ("", "s")), "as_int_lists")


class NamedValue(NamedTuple):
    """A value of the run, by its name in the graph."""

    name: str


class InputDevice(NamedTuple):
    """The device of the images, wherever the program was exported."""


@dataclass(frozen=True)
class Step:
    """One operator, its arguments, and the names of what it returns: one name, or one for each value."""

    op: Op
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Any, ...]
    last_uses: tuple[str, ...]  # values that no later step reads


class ExportedNetwork(nn.Module):
    """The network of an exported program: takes images `[B, *shape]`, returns its output, or several.

    Args:
        steps: of the program.
        weights: by their names there.
        image: the name of the images there.
        shape: of an image; None where any length will do.
        dtype: of the images there; others are converted, as weights may have another one.
        outputs: the names of what is returned.
        keys: those of the dict in which the outputs are returned; empty for a tuple.
    """

    def __init__(
        self, steps: Sequence[Step], weights: Mapping[str, Tensor], image: str, shape: Sequence[int | None],
        dtype: torch.dtype, outputs: Sequence[str], keys: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.steps, self.image, self.outputs, self.keys = tuple(steps), image, tuple(outputs), tuple(keys)
        self.shape, self.dtype = tuple(shape), dtype
        self.names = tuple(weights)
        for number, value in enumerate(weights.values()):
            if isinstance(value, nn.Parameter):
                self.register_parameter(f"weight_{number}", value)
            else:
                self.register_buffer(f"weight_{number}", value)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...] | dict[str, Tensor]:
        """The outputs for images."""
        self._check(x)
        values: dict[str, Any] = {name: getattr(self, f"weight_{n}") for n, name in enumerate(self.names)}
        values[self.image] = x.to(self.dtype) if self.dtype.is_floating_point else x
        for step in self.steps:
            args = _filled(step.args, values, x.device)
            kwargs = {key: _filled(value, values, x.device) for key, value in step.kwargs.items()}
            _store(step.results, step.op(*args, **kwargs), values)
            for name in step.last_uses:
                values.pop(name, None)
        outputs: tuple[Tensor, ...] = tuple(values[name] for name in self.outputs)
        if len(outputs) == 1:
            return outputs[0]
        return dict(zip(self.keys, outputs, strict=True)) if self.keys else outputs

    def _check(self, x: Tensor) -> None:
        given = tuple(x.shape[1:])
        if len(given) != len(self.shape) or any(b not in (None, a) for a, b in zip(given, self.shape, strict=True)):
            wanted = "x".join("?" if side is None else str(side) for side in self.shape)
            raise ValueError(f"it was exported for images of {wanted}")


def steps_of(graph: Mapping[str, Any], kept: Sequence[str], place: str) -> list[Step]:
    """The steps of a graph.

    Args:
        graph: as the format has it.
        kept: names of values that are needed after the last step.
        place: names the file in errors.

    Raises:
        UserError: an operator or an argument is not one of those that compute with tensors.
    """
    steps: list[Step] = []
    needed = set(kept)
    for node in reversed(graph["nodes"]):
        op = _operator(node["target"], place)
        inputs = [(each["name"], _argument(each["arg"], node["target"], place)) for each in node["inputs"]]
        by_name = node["target"] not in _ON_NUMBERS
        used = {name for _, value in inputs for name in _names(value)}
        results = tuple(_result(each, node["target"], place) for each in node["outputs"])
        unused = set(_names(results)) - needed
        steps.append(Step(
            op, () if by_name else tuple(value for _, value in inputs), dict(inputs) if by_name else {},
            results, tuple(sorted((used - needed) | unused)),
        ))  # fmt: skip
        needed |= used
    return steps[::-1]


def _operator(target: str, place: str) -> Op:
    if target in _ON_NUMBERS:
        return _ON_NUMBERS[target]
    words = target.split(".")
    known = (
        len(words) == 5
        and words[:2] == ["torch", "ops"]
        and words[2] in _LIBRARIES
        and words[3] not in _NOT_OF_NETWORKS
    )
    if known:
        if words[2] == "torchvision":
            import torchvision  # noqa: F401  # registers its operators
        overloads = getattr(getattr(torch.ops, words[2]), words[3], None)
        op = getattr(overloads, words[4], None)
        if isinstance(op, torch._ops.OpOverload):
            return op
    raise UserError(
        f"{place} uses {shortened(target)}, which is not an operator on tensors that this version of torch has and "
        "robustkit runs; build the network in Python: --model FILE.py:NAME --weights FILE."
    )


def _argument(union: Mapping[str, Any], target: str, place: str) -> Any:
    """What an argument stands for: a plain value, a type of torch, or the names of values."""
    (kind, value), *others = union.items()
    if kind in _PLAIN and not others:
        return value
    readers: dict[str, Callable[[Any], Any]] = {
        "as_none": lambda _: None,
        "as_tensor": lambda each: NamedValue(each["name"]),
        "as_tensors": lambda each: [NamedValue(one["name"]) for one in each],
        "as_optional_tensor": _optional,
        "as_optional_tensors": lambda each: [_optional(one) for one in each],
        "as_sym_int": _symbol,
        "as_sym_ints": lambda each: [_symbol(one) for one in each],
        "as_sym_bool": _symbol,
        "as_sym_float": _symbol,
        "as_scalar_type": lambda each: DTYPES[each],
        "as_layout": lambda each: _LAYOUTS[each],
        "as_memory_format": lambda each: _MEMORY_FORMATS[each],
        "as_device": lambda _: InputDevice(),
    }
    if kind not in readers or others:
        raise UserError(
            f"{place} gives {shortened(target)} an argument of the kind {shortened(kind)}, which robustkit does not "
            "run; build the network in Python: --model FILE.py:NAME --weights FILE."
        )
    return readers[kind](value)


def _optional(union: Mapping[str, Any]) -> NamedValue | None:
    return NamedValue(union["as_tensor"]["name"]) if "as_tensor" in union else None


def _symbol(union: Mapping[str, Any]) -> Any:
    """A number that is known when the file is written, or the name of one that depends on the images."""
    return NamedValue(union["as_name"]) if "as_name" in union else next(iter(union.values()))


def _result(union: Mapping[str, Any], target: str, place: str) -> Any:
    value = _argument(union, target, place)
    return [each for each in value if isinstance(each, NamedValue)] if isinstance(value, list) else value


def _names(value: Any) -> set[str]:
    if isinstance(value, NamedValue):
        return {value.name}
    return {name for each in value for name in _names(each)} if isinstance(value, list | tuple) else set()


def _filled(value: Any, values: Mapping[str, Any], device: torch.device) -> Any:
    if isinstance(value, NamedValue):
        return values[value.name]
    if isinstance(value, InputDevice):
        return device
    return [_filled(each, values, device) for each in value] if isinstance(value, list | tuple) else value


def _store(results: tuple[Any, ...], value: Any, values: dict[str, Any]) -> None:
    """Keep what a step returned under its names; steps with one result return it alone."""
    for result, each in zip(results, value if len(results) > 1 else (value,), strict=False):
        if isinstance(result, NamedValue):
            values[result.name] = each
        elif isinstance(result, list):
            _store(tuple(result), each if len(result) > 1 else each[0], values)
