"""Passes of images through a network under hooks, in tiles of one size.

The kernels that torch chooses, and so the last bits of an activation, depend on the batch size
(`robustkit.classifier.batch_sizes`). All tiles have the same size, whatever the caller's batch size is, and incomplete
tiles are padded, so each number depends on its own pair of images only. Every pass starts from the same seed, so the
noise of a randomized model is not measured as a perturbation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.generators import reseed
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.logits import logits_of, unnamed
from robustkit.errors import UserError
from robustkit.nethook import Call, Trace
from robustkit.nethook.gradients import gradients
from robustkit.nethook.structure import mapped, tensors
from robustkit.primitives.rows import padded

from .points import Pairs

INPUT: Final = "(input)"  # the pixels, as the first call of every pass

# Most values of all outputs of one tile. With inputs, gradients, the graph and the second image the memory is about six
# times as much: at most a gigabyte in fp32.
_ROOM = 1 << 25
_TILE = 16  # images at most
# Tensors whose first axis is a multiple of the batch size are per image. Usual numbers of channels, tokens or windows
# are no multiple of 11.
_PROBE = 11

# Logits [B, K] -> [B]
Score = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


class Key(NamedTuple):
    """One call of one layer: a layer that is used again has several."""

    layer: str
    call: int

    @property
    def name(self) -> str:
        """The layer, and which of its calls if it is not the first."""
        return self.layer if self.call == 0 else f"{self.layer} #{self.call + 1}"


INPUT_KEY: Final = Key(INPUT, 0)


@dataclass(frozen=True)
class RecordedCall:
    """The tensors of one call in one pass, `[B, ...]` each; None where there is no such tensor."""

    output: Tensor
    input: Tensor | None = None
    grad: Tensor | None = None  # of the score with respect to `output`


@dataclass(frozen=True)
class Pass:
    """The calls of one pass in the order of execution, the input first."""

    calls: dict[Key, RecordedCall]
    logits: Tensor  # [B, K]


def tile_size(width: int) -> int:
    """Number of images in one pass if the outputs of one image have `width` values: a power of two."""
    return max(size for size in (1, 2, 4, 8, _TILE) if size == 1 or size * width <= _ROOM)


def tiles(pairs: Pairs, size: int) -> Iterator[tuple[Pairs, int]]:
    """The pairs in tiles of one size, and how many rows of each tile are no padding."""
    for rows in torch.split(torch.arange(len(pairs), device="cpu"), size):
        yield pairs.take(padded(rows, size)), len(rows)


def shape_probe(points: Tensor) -> Tensor:
    """A few images for finding shapes, repeated if there are not enough."""
    return points[torch.arange(_PROBE, device="cpu") % len(points)]


@dataclass(frozen=True)
class Runner:
    """Runs the unmodified network of a classifier under hooks, within the classifier's session.

    Args:
        classifier: the classifier.
        seed: of the global generators, at the start of each pass.
    """

    classifier: Classifier
    seed: int

    def ran(self, layers: Sequence[str], points: Tensor, *, strict: bool) -> dict[Key, Shape | None]:
        """The calls in the order in which they end, with the output's shape for one image; None if it has no shape."""
        shapes: dict[Key, Shape] = {}

        def note(tensor: Tensor, *, name: str, call: int) -> Tensor:
            rows = rows_of(tensor, len(points))
            if rows is not None:
                shapes.setdefault(Key(name, call), tuple(rows.shape[1:]))
            return unnamed(tensor).new_empty(0)

        reseed(self.seed)
        network = self.classifier.network
        with torch.no_grad(), Trace(network, list(layers), reduce=note, clone=False, strict=strict) as trace:
            self.classifier.model(self._placed(points))
        keys = [Key(each.name, each.index) for each in trace.calls]
        return {key: shapes.get(key) for key in keys}

    def run(self, layers: Sequence[str], points: Tensor, score: Score | None = None) -> Pass:
        """One pass of points `[B, *S]` in [0, 1]; with `score`, also the gradients of the score at all calls."""
        fed = self._placed(points).requires_grad_(score is not None)
        reseed(self.seed)
        with (
            torch.set_grad_enabled(score is not None),
            self._trace(layers, input=True, grad=score is not None, edit=None if score is None else _no_views) as trace,
        ):
            # A copy, because the model may write into its input, which is a row of the trace.
            logits = logits_of(self.classifier.model(fed.clone()), fed)
            value = None if score is None else score(logits).sum()
            grad, has_graph = None, value is not None and value.requires_grad
            if value is not None and has_graph:
                (grad,) = gradients(value, [fed], retain_graph=True)
                if trace is not None:
                    trace.grad(value)
        calls = {INPUT_KEY: RecordedCall(fed.detach(), None, grad)}
        for each in [] if trace is None else trace.calls:
            recorded = _recorded(each, len(points), has_graph)
            if recorded is not None:
                calls[Key(each.name, each.index)] = recorded
        return Pass(calls, logits.detach())

    def slices(self, points: Tensor, wanted: Mapping[Key, slice]) -> dict[Key, Tensor]:
        """`[B, width]` slices of the flattened outputs; nothing else is stored."""

        def part(tensor: Tensor, *, name: str, call: int) -> Tensor:
            span, rows = wanted.get(Key(name, call)), rows_of(tensor, len(points))
            return unnamed(tensor).new_empty(0) if span is None or rows is None else rows.flatten(1)[:, span].clone()

        fed = self._placed(points)
        slices = {INPUT_KEY: fed.flatten(1)[:, wanted[INPUT_KEY]]} if INPUT_KEY in wanted else {}
        reseed(self.seed)
        names = sorted({key.layer for key in wanted if key != INPUT_KEY})
        with torch.no_grad(), self._trace(names, reduce=part, clone=False) as trace:
            self.classifier.model(fed.clone())
        for each in [] if trace is None else trace.calls:
            value = first_tensor(each.output, len(points))
            if value is not None and Key(each.name, each.index) in wanted:
                slices[Key(each.name, each.index)] = value
        return slices

    def _trace(self, layers: Sequence[str], **how: Any) -> AbstractContextManager[Trace | None]:
        """A trace of the layers, or None for no layers. Layers that do not run are reported by `check_same_calls`."""
        return Trace(self.classifier.network, list(layers), strict=False, **how) if layers else nullcontext()

    @cached_property
    def _input(self) -> InputFormat:
        return self.classifier.input_format()

    def _placed(self, points: Tensor) -> Tensor:
        return self._input.fed(self._input.moved(points).detach())


def _no_views(output: Any, *, name: str, call: int) -> Any:
    """A copy of an output that is a view; an in-place operation on a view would lose the gradient at this call."""
    return mapped(output, torch.clone) if any(part._is_view() for part in tensors(output)) else None


def _recorded(call: Call, rows: int, has_graph: bool) -> RecordedCall | None:
    output = first_tensor(call.output, rows)
    if output is None:
        return None
    grad = first_tensor(call.grad, rows) if has_graph else None
    # If there are several outputs, the first may have no gradient while another has one.
    fits = grad is not None and grad.shape == output.shape
    return RecordedCall(output, first_tensor(call.input, rows), grad if fits else None)


def first_tensor(value: Any, rows: int) -> Tensor | None:
    """The first floating point tensor in a layer's output that is per image, as `[rows, ...]`."""
    return next((first for part in tensors(value) if (first := rows_of(part, rows)) is not None), None)


def rows_of(tensor: Tensor, rows: int) -> Tensor | None:
    """The tensor with one row per image; windows and heads that share the first axis become part of the row."""
    if not tensor.is_floating_point() or tensor.dim() == 0 or not len(tensor) or len(tensor) % rows:
        return None
    tensor = unnamed(tensor)
    return tensor if len(tensor) == rows else tensor.reshape(rows, len(tensor) // rows, *tensor.shape[1:])


def check_same_calls(one: Pass, other: Pass) -> None:
    """Check that two passes called the same layers in the same order.

    Raises:
        UserError: they did not.
    """
    if list(one.calls) != list(other.calls):
        odd = next((a.layer for a, b in zip_longest(one.calls, other.calls) if a is not None and a != b), "")
        raise UserError(
            f"The network calls other layers for some images, from layer {odd!r} on, so its calls cannot be compared; "
            "name layers that always run in the same order (layers= or --layer)."
        )
