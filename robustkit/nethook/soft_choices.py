"""Gradients of what a network looks up by a choice: an entry at `argmin`, the values of the `topk`, a `one_hot` class.

An index carries no gradient, so the gradient of a lookup says what the chosen entry does and nothing of the entry that
another input would choose. Here each index remembers the scores that it was chosen from. A lookup keeps its value and
gets the gradient of the mean of all entries, weighted by a softmax over how near their scores are to the chosen one:
for an argmax that is the softmax of the scores, for the k-th largest the SoftSort of Prillo & Eisenschlos 2020
(arXiv:2006.16038). The temperature is the mean distance to the two nearest scores, so no scale is given. A comparison
is a choice between two; its temperature is the mean distance between the two over an image.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.nethook.bpda import with_gradient_of
from robustkit.nethook.op_sites import (
    CodeLine,
    GradientStop,
    caller,
    is_in_place,
    is_step,
    name_of,
    unrounded,
    without_derivative,
)
from robustkit.nethook.structure import mapped, tensors

# How many scores next to the chosen one give the temperature by their mean distance, and the least temperature, of the
# mean distance of all: entries may be equal. Chosen on digits 100 to 219 (bench/straight_through.py).
_NEAREST, _LEAST = 2, 1e-3
_LARGEST = 1 << 21  # weights of one choice per image; 64 images then take half a gigabyte
# The operations that choose by scores along a dimension; the second part of what the others return has the indices.
_INDEX_ALONE = ("argmax", "argmin", "argsort")
_WITH_VALUES = ("max", "min", "topk", "sort", "kthvalue", "median")
CHOICES = (*_INDEX_ALONE, *_WITH_VALUES)
_ABOVE, _BELOW = ("gt", "ge", "greater", "greater_equal"), ("lt", "le", "less", "less_equal")
COMPARISONS = (*_ABOVE, *_BELOW)
_NEGATIONS = ("invert", "bitwise_not", "logical_not")
_RANDOM = ("rand_like", "randn_like", "randint_like", "normal", "bernoulli", "multinomial", "poisson", "dropout")
_INTEGER = ("long", "int", "short", "char", "byte", "to", "type")
# What changes the shape of an index and no entry of it.
_SHAPES = (
    *_INTEGER, "getitem", "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "transpose", "T",
    "mT", "t", "permute", "movedim", "moveaxis", "swapaxes", "swapdims", "select", "narrow", "chunk", "split", "unbind",
    "tensor_split", "flip", "roll", "repeat", "repeat_interleave", "tile", "contiguous", "clone", "detach", "data",
    "cpu", "cuda", "broadcast_to", "atleast_1d", "atleast_2d", "ravel",
)  # fmt: skip


class _Choice(NamedTuple):
    """What an index remembers."""

    chosen: Tensor  # kept, so that no other tensor gets its identity
    weights: Tensor  # `[*chosen.shape, K]`; of counts `chosen.shape`
    line: CodeLine | None
    op: str
    version: int  # of `chosen`: what is written into it was not chosen
    counts: bool = False  # whether it is no index but how often each class was chosen, or whether a comparison is true


class SoftChoices:
    """The choices of a forward pass, and what it looks up by them.

    Args:
        noted: is told of each lookup whose gradient is changed.
        images: how many pass the network. A choice that would take too much memory for each of them keeps its gradient.
    """

    def __init__(self, noted: Callable[[GradientStop], None], images: int) -> None:
        self.noted, self.most = noted, images * _LARGEST
        self._choices: dict[int, _Choice] = {}

    def has(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an operation gets an index that was chosen."""
        return bool(self._choices) and any(map(self._choice, tensors((*args, *kwargs.values()))))

    def forget(self) -> None:
        """Free the memory of all choices."""
        self._choices.clear()

    def _choice(self, value: Any) -> _Choice | None:
        choice = self._choices.get(id(value))
        return choice if choice is not None and choice.version == choice.chosen._version else None

    def followed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """The output of an operation, with the gradient of the soft choice if it looks something up by one.

        Args:
            func: the operation.
            args: its arguments; those of a lookup into `args[0]` in place are written to already.
            kwargs: its named arguments.
            output: what it returned.
        """
        name = name_of(func)
        if name in CHOICES:
            with suppress(RuntimeError, IndexError, TypeError):
                self._choose(name, args, kwargs, output)
            return output
        if name in COMPARISONS:
            with suppress(RuntimeError, IndexError, TypeError):
                self._compare(name, args, kwargs, output)
            return output
        if name in _INTEGER and args and isinstance(args[0], Tensor) and args[0].requires_grad:
            self._cut_off(args[0], name, output)
            return output
        choice = next(filter(None, map(self._choice, tensors((*args, *kwargs.values())))), None)
        if choice is None:
            return output
        with suppress(RuntimeError, IndexError, TypeError, ValueError):  # a form that is not known keeps its gradient
            if choice.counts:
                return self._counts(choice, name, func, args, kwargs, output)
            lookup = LOOKUPS.get(name)
            smooth = lookup(choice, args, kwargs) if lookup is not None else None
            if smooth is not None:
                softened = self._softened(choice, output, smooth)
                return output.copy_(softened) if output is args[0] else softened
            if name == "one_hot":
                return self._counted(choice, output)
            if name == "getitem" and args[1] is choice.chosen and args[0].dim() == 1:
                return self._labelled(choice, args[0], output)
            if name in _SHAPES:
                self._carry(choice, func, args, kwargs, output)
        return output

    def _choose(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        scores = self._soft(args[0] if args else kwargs.get("input"))
        if not (isinstance(scores, Tensor) and scores.is_floating_point() and scores.requires_grad):
            return
        index = output if name in _INDEX_ALONE else output[1] if isinstance(output, tuple) else None
        if not isinstance(index, Tensor) or index.is_floating_point() or not scores.dim():
            return
        dim = _dimension(name, args, kwargs)
        if dim is None:  # one choice among the values of all images
            return
        kept = index.dim() == scores.dim()
        count = scores.shape[dim]
        if count > 1 and index.numel() * count <= self.most:
            weights = _weights(scores, index if kept else index.unsqueeze(dim), dim % scores.dim())
            weights = weights if kept else weights.squeeze(dim % scores.dim())
            self._choices[id(index)] = _Choice(index, weights, caller(), name, index._version)

    def _compare(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """A comparison is a choice between two: how likely it is true is a sigmoid of the difference."""
        one, other = args[0], args[1] if len(args) > 1 else kwargs["other"]
        if not isinstance(output, Tensor) or not any(each.requires_grad for each in tensors((one, other))):
            return
        lead = finite_gradient(one - other if name in _ABOVE else other - one)
        away = lead.detach().abs().flatten(1) if lead.dim() > 1 else lead.detach().abs().unsqueeze(-1)
        width = _mean_of_finite(away).reshape(-1, *[1] * (lead.dim() - 1)) if lead.dim() else away
        likely = torch.sigmoid(lead / torch.where(width > 0, width, 1.0))
        self._choices[id(output)] = _Choice(output, finite_gradient(likely), caller(), name, output._version, True)

    def _cut_off(self, value: Tensor, name: str, output: Any) -> None:
        """A whole number remembers the number that it was cut off from, as a count its soft version."""
        if isinstance(output, Tensor) and not (output.is_floating_point() or output.dtype == torch.bool):
            soft = finite_gradient(value)
            self._choices[id(output)] = _Choice(output, soft, caller(), name, output._version, counts=True)

    def _carry(
        self, choice: _Choice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:  # fmt: skip
        """An index in another shape remembers what it did before."""
        if not args or args[0] is not choice.chosen or next(tensors((*args[1:], *kwargs.values())), None) is not None:
            return
        parts = [output] if isinstance(output, Tensor) else list(output) if isinstance(output, (tuple, list)) else []
        if not parts or any(not isinstance(part, Tensor) or part.is_floating_point() for part in parts):
            return
        moved = torch.func.vmap(lambda each: func(each, *args[1:], **kwargs), in_dims=-1, out_dims=-1)(choice.weights)
        for part, weights in zip(parts, [moved] if isinstance(moved, Tensor) else moved, strict=True):
            if weights.shape[:-1] == part.shape:
                self._choices[id(part)] = _of(part, weights.to(choice.weights.dtype), choice)

    def _counted(self, choice: _Choice, output: Tensor) -> Tensor:
        """A one-hot tensor of the chosen classes."""
        more = output.shape[-1] - choice.weights.shape[-1]
        self._choices[id(output)] = _of(output, F.pad(choice.weights, (0, more)), choice, counts=True)
        return output

    def _labelled(self, choice: _Choice, labels: Tensor, output: Tensor) -> Tensor:
        """The classes `labels` `[K]` of the chosen entries: each class as likely as its entries together."""
        weights = choice.weights @ F.one_hot(labels.long()).to(choice.weights)
        self._choices[id(output)] = _of(output, weights, choice)
        return output

    def _counts(
        self, choice: _Choice, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:  # fmt: skip
        """What is computed with counts, such as a sum of votes, is computed with their soft versions, too."""
        if is_in_place(func):
            self._choices.pop(id(args[0]), None)
            return output
        smooth = self._smooth(choice, name, func, args, kwargs, output)
        both = isinstance(smooth, Tensor) and isinstance(output, Tensor) and smooth.is_floating_point()
        if not both or smooth.shape != output.shape or without_derivative(smooth):
            return output
        if output.is_floating_point():
            return self._softened(choice, output, smooth)
        self._choices[id(output)] = _of(output, smooth, choice, counts=True)
        return output

    def _smooth(
        self, choice: _Choice, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:  # fmt: skip
        """What an operation makes of the soft versions of counts."""
        if name in _INTEGER and isinstance(output, Tensor) and not output.is_floating_point():
            return choice.weights
        if name in _NEGATIONS:
            return 1 - choice.weights
        if name in _RANDOM:  # asked again, it would draw other numbers
            return None
        if name == "where":
            if args[0] is not choice.chosen or any(each.requires_grad for each in tensors(args[1:])):
                return None
            return choice.weights * (args[1] - args[2]) + args[2]
        soft = [self._soft(each, rest=False) for each in args]
        if is_step(name, kwargs):
            return unrounded(name, soft[0], soft, {key: self._soft(each, rest=False) for key, each in kwargs.items()})
        return func(*soft, **kwargs)

    def _soft(self, value: Any, *, rest: bool = True) -> Any:
        """The soft version of counts, alone or in a list; anything else as it is, `rest`: with its gradient."""

        def soft(part: Tensor) -> Tensor:
            choice = self._choice(part)
            if choice is not None and choice.counts:
                return choice.weights
            return part if rest else part.detach()

        return mapped(value, soft)

    def _softened(self, choice: _Choice, output: Tensor, smooth: Tensor) -> Tensor:
        smooth = finite_gradient(smooth).to(output).expand_as(output)
        own = smooth + output if output.requires_grad else smooth
        soft = with_gradient_of(own, output.detach())
        self.noted(GradientStop(choice.op, choice.line))
        return soft


def _of(chosen: Tensor, weights: Tensor, choice: _Choice, *, counts: bool = False) -> _Choice:
    """What a tensor that was made from a choice remembers."""
    return choice._replace(chosen=chosen, weights=weights, version=chosen._version, counts=counts)


def _weights(scores: Tensor, index: Tensor, dim: int) -> Tensor:
    """`[*index.shape, K]` of a softmax over how near each of the K scores is to the chosen one."""
    rows = finite_gradient(scores).movedim(dim, -1)
    rows = rows.float() if rows.dtype in (torch.half, torch.bfloat16) else rows
    places = index.movedim(dim, -1).clone()  # the index may be written into later
    finite = rows.isfinite()
    rows = torch.where(finite, rows, 0)  # infinities have no distance, and masked scores are never chosen
    away = (rows.unsqueeze(-2) - rows.gather(-1, places).unsqueeze(-1)).abs()
    counted = finite.unsqueeze(-2) & finite.gather(-1, places).unsqueeze(-1) & away.isfinite()
    far = away.detach().masked_fill(~counted, torch.inf)
    nearest = far.topk(min(_NEAREST + 1, rows.shape[-1]), largest=False).values
    width = _mean_of_finite(nearest, less=1).maximum(_LEAST * _mean_of_finite(far))
    width = torch.where(width > 0, width.clamp(min=torch.finfo(width.dtype).tiny), 1.0)  # all scores are equal
    alone = F.one_hot(places, rows.shape[-1]).bool() & ~counted  # a chosen infinity is as sure as can be
    distances = torch.where(counted, away / width, torch.where(alone, 0.0, torch.inf))
    return finite_gradient(torch.softmax(-distances, -1).movedim(-2, dim))


def _mean_of_finite(values: Tensor, less: int = 0) -> Tensor:
    """`[..., 1]` along the last dimension, of all but `less` of them."""
    finite = values.isfinite()
    count = (finite.sum(-1, keepdim=True) - less).clamp(min=1)
    # Divided before the sum, which may be larger than the largest number.
    return (torch.where(finite, values, 0) / count).sum(-1, keepdim=True)


def finite_gradient(value: Tensor) -> Tensor:
    """The same values; what is not finite in their gradient is zero, as it is outside of the context."""
    return _FiniteGradient.apply(value)  # type: ignore[no-any-return]


class _FiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].nan_to_num(0.0, 0.0, 0.0)


def _dimension(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The dimension that an operation chooses along."""
    if "dim" in kwargs:
        dim = kwargs["dim"]
    else:
        place = 2 if name in ("topk", "kthvalue") else 1
        default = None if name in ("argmax", "argmin") else -1
        dim = args[place] if len(args) > place else default
    return dim if isinstance(dim, int) and not isinstance(dim, bool) else None


def _mean_of_entries(weights: Tensor, table: Tensor, dim: int) -> Tensor:
    """`table` with the mean of its entries in place of dimension `dim`: the shape of the index stands there."""
    soft: Tensor = torch.tensordot(weights, table.data.to(weights), ([-1], [dim]))
    places = weights.dim() - 1
    return soft.movedim(tuple(range(places)), tuple(range(dim, dim + places)))


def _at(choice: _Choice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """`table[index]`, `table[:, index]` and `table[other, index]`."""
    table, key = args[0], args[1]
    if table is choice.chosen or not isinstance(table, Tensor) or not table.is_floating_point():
        return None
    keys = key if isinstance(key, tuple) else (key,)
    place = next((number for number, each in enumerate(keys) if each is choice.chosen), None)
    if place is None or table.shape[place] != choice.weights.shape[-1]:
        return None
    if all(isinstance(each, slice) and each == slice(None) for each in keys[:place]) and len(keys) == place + 1:
        return _mean_of_entries(choice.weights, table, place)
    if not all(isinstance(each, Tensor) and not each.is_floating_point() for each in keys):
        return None
    shape = torch.broadcast_shapes(*(each.shape for each in keys))  # type: ignore[no-untyped-call]
    every = torch.arange(table.shape[place], device=table.device)
    whole = table.data[tuple(every if each is choice.chosen else each.unsqueeze(-1) for each in keys)]
    weights = choice.weights.expand(*shape, -1)
    return (weights.reshape(*weights.shape, *[1] * (whole.dim() - weights.dim())) * whole).sum(len(shape))


def _embedding(choice: _Choice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    table = args[1] if len(args) > 1 else kwargs["weight"]
    return _mean_of_entries(choice.weights, table, 0) if len(table) == choice.weights.shape[-1] else None


def _selected(choice: _Choice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    table, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else 0)
    dim = dim % table.dim()
    return _mean_of_entries(choice.weights, table, dim) if table.shape[dim] == choice.weights.shape[-1] else None


def _gathered(choice: _Choice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    table = args[0]
    # `gather` has the dimension before the index, `take_along_dim` behind it.
    dim = kwargs.get("dim", next((each for each in args[1:] if isinstance(each, int)), None))
    if table is choice.chosen or dim is None or not table.is_floating_point():
        return None
    dim = dim % table.dim()
    rows, weights = table.data.movedim(dim, -1), choice.weights.movedim(dim, -2)
    rows = rows[tuple(slice(size) for size in weights.shape[:-2])]
    if rows.shape[-1] != weights.shape[-1]:
        return None
    soft: Tensor = (weights @ rows.unsqueeze(-1).to(weights)).squeeze(-1).movedim(-1, dim)
    return soft


def _scattered(choice: _Choice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """What one value, written at the chosen places, adds to zeros."""
    target, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    value = kwargs.get("value", kwargs.get("src", args[3] if len(args) > 3 else None))
    if dim is None or not isinstance(value, (int, float)) or not target.is_floating_point():
        return None
    dim = dim % target.dim()
    soft: Tensor = value * choice.weights.sum(dim).movedim(-1, dim)
    return soft if soft.shape == target.shape else None


_Lookup = Callable[[_Choice, tuple[Any, ...], dict[str, Any]], Tensor | None]
LOOKUPS: dict[str, _Lookup] = {
    "getitem": _at, "embedding": _embedding, "index_select": _selected, "gather": _gathered,
    "take_along_dim": _gathered, "scatter": _scattered,
}  # fmt: skip
