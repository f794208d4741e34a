"""The reference network: the caller's own module in fp32, from which all verdicts come."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustkit.classifier.batch_sizes import BatchSizes, made_up
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.logits import logits_of
from robustkit.classifier.memory import in_parts
from robustkit.primitives.rows import Rows, padded

_KIND = "judge"  # of query


@dataclass
class PassCount:
    """Rows sent through a network so far, padding and comparisons of batch sizes included."""

    forwards: int = 0
    backwards: int = 0


@dataclass(frozen=True)
class _Answers(Rows):
    values: Tensor  # [B, K]


@dataclass(frozen=True)
class Reference:
    """The unmodified model in eval mode."""

    model: nn.Module
    input: InputFormat
    sizes: BatchSizes
    passes: PassCount

    @torch.no_grad()
    def forward(self, points: Tensor) -> Tensor:
        """Logits `[n, K]` from one forward pass of exactly these rows: fp32, or float64 if the model's are."""
        self.passes.forwards += len(points)
        logits = logits_of(self.model(self.input.fed(points)), points)
        return logits if logits.dtype == torch.float64 else logits.float()

    def logits(self, points: Tensor) -> Tensor:
        """Logits `[n, K]` at points `[n, *S]`, bit-equal in any batch; in parts if memory is short.

        Raises:
            UserError: a single image does not fit into memory.
        """
        return exact_answers(self.sizes, _KIND, points, self.forward)


def exact_answers(sizes: BatchSizes, kind: str, points: Tensor, forward: Callable[[Tensor], Tensor]) -> Tensor:
    """What `forward` says `[n, K]` of points `[n, *S]`, bit-equal in any batch; in parts if memory is short.

    Args:
        sizes: the batch sizes of the network.
        kind: of query; each has proofs of its own.
        points: `[n, *S]`.
        forward: takes some of them, or made-up ones.

    Raises:
        UserError: a single image does not fit into memory.
    """
    numbers = torch.arange(len(points), device=points.device)
    ask: Callable[[Tensor], _Answers] = lambda rows: _at_once(sizes, kind, points.index_select(0, rows), forward)  # noqa: E731
    return in_parts(ask, numbers).values


def _at_once(sizes: BatchSizes, kind: str, points: Tensor, forward: Callable[[Tensor], Tensor]) -> _Answers:
    def probe(numbers: Tensor) -> _Answers:
        return _Answers(forward(_within(points, made_up(numbers, points))))

    whole = sizes.layout(kind, probe).whole
    size = sizes.fit(len(points), sizes.tile, kind) if whole else len(points)
    filled = points.index_select(0, padded(torch.arange(len(points), device=points.device), size))

    def ask(rows: Tensor) -> _Answers:
        return _Answers(forward(filled.index_select(0, rows)))

    return _Answers(sizes.answer(ask, size, kind, points.device, probe).values[: len(points)])


def _within(points: Tensor, images: Tensor) -> Tensor:
    """Made-up images of [0, 1], moved into the range of the points where that is another one."""
    low, high = points.amin(), points.amax()
    return images if bool(low >= 0) and bool(high <= 1) else low + (high - low) * images
