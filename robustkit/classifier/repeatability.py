"""Whether a model repeats its answers: always, after the same seed only, or never.

The bits of answers to the same batch are compared, so that noise of any size is seen. A model that never repeats an
answer (it has a generator of its own, reads the clock, counts its calls) is refused: a verdict on it could not be
confirmed. Kernels that add in no fixed order give other last digits, too; on an accelerator such a model is asked again
with deterministic kernels, which tells the two apart.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.classifier.generators import generator_states, reseed
from robustkit.classifier.logit_sizes import sizes
from robustkit.errors import UserError

_CALLS = 4  # with the same seed: a model that counts its calls may answer a few of them alike
_SEEDS = 64  # of a model that draws random numbers, which may change an answer only now and then
_ROUNDING = 1e-6  # of the sizes of the logits: a smaller difference between two calls may be rounding on a CPU,
_ROUNDING_ELSEWHERE = 1e-3  # and on an accelerator, where kernels are then shown to be its cause
_DRIFT = 1e-5  # of the sizes of the logits, between the first call and the last


@dataclass(frozen=True)
class Repeatability:
    """What comparing a model's answers has shown.

    Args:
        ask: logits of a fixed batch.
        seed: of `first`.
        first: the answer after seeding.
        randomized: whether another seed leads to another answer.
        wobble: how far answers to the same batch after the same seed were apart, by rounding, as a share of the sizes
            of the logits; 0 where bits are equal.
    """

    ask: Callable[[], Tensor]
    seed: int
    first: Tensor
    randomized: bool
    wobble: float

    def lasts(self) -> bool:
        """Whether the model still gives the first answer. Rounding may differ, as kernels compiled since do it."""
        drift = max(_distance(_seeded(self.ask, self.seed), self.first) for _ in range(_CALLS))
        return drift <= max(10 * self.wobble, _DRIFT)


def repeatability(ask: Callable[[], Tensor], seed: int) -> Repeatability:
    """What a few calls of a model show.

    Args:
        ask: logits of a fixed batch.
        seed: of the global generators.

    Raises:
        UserError: the same seed does not lead to the same answer.
    """
    reseed(seed)
    before = generator_states()
    first = ask()
    draws = generator_states() != before or first.device.type not in ("cpu", "cuda")
    wobble = max(_distance(_seeded(ask, seed), first) for _ in range(_CALLS - 1))
    if wobble > 0 and wobble > _allowed(ask, seed, first):
        raise UserError(
            "The model's answer to the same images changes from call to call, although torch, random and numpy were "
            "seeded anew (it has a generator of its own, reads the clock, or counts its calls), so no verdict could be "
            "confirmed; draw from torch's global generator: torch.rand(...) without generator=."
        )
    randomized = draws and any(
        _distance(_seeded(ask, other), first) > 10 * wobble for other in range(seed + 1, seed + _SEEDS)
    )
    return Repeatability(ask, seed, first, randomized, wobble)


def _seeded(ask: Callable[[], Tensor], seed: int) -> Tensor:
    reseed(seed)
    return ask()


def _distance(answer: Tensor, first: Tensor) -> float:
    """The largest difference of two answers, as a share of the first's sizes.

    0 only for equal bits, infinite where one of them has another shape.
    """
    if answer.shape != first.shape:
        return float("inf")
    same = (answer == first) | (answer.isnan() & first.isnan())
    if bool(same.all()):
        return 0.0
    shares = (answer - first).abs() / sizes(first)
    return float(shares[~same].nan_to_num(nan=float("inf")).max())


def _allowed(ask: Callable[[], Tensor], seed: int, first: Tensor) -> float:
    """How far two answers after the same seed may be apart, as a share of the sizes of the logits."""
    on_cpu = first.device.type == "cpu"
    return _ROUNDING if on_cpu or not _kernels_differ(ask, seed) else _ROUNDING_ELSEWHERE


def _kernels_differ(ask: Callable[[], Tensor], seed: int) -> bool:
    """Whether answers repeat with deterministic kernels, or some kernel has no deterministic form."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            first, second = _seeded(ask, seed), _seeded(ask, seed)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    return torch.equal(first, second) or any("deterministic implementation" in str(each.message) for each in said)
