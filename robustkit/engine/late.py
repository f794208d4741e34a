"""Steps whose facts are read one step late, so that a GPU never waits for the host.

Every look at a GPU's memory waits until the GPU has computed all that was queued before, and while the host then
decides, the GPU has nothing to do. So the facts of a step are packed into one byte per row and copied while the next
step is computed. A trial that is over takes one step more; its result is not read and not counted, so outcomes and
counts are those of looking at once. torchode (Lienen & Guennemann 2022, arXiv:2210.12375) hides its copies in this way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.engine.jobs import Trial, lost_rows
from robustkit.engine.own_attacks import check_queries
from robustkit.engine.verdicts import gradient_not_finite
from robustkit.primitives.protocol import Attack, Seen, State

_INFINITE, _ZERO, _CANDIDATE, _DONE = 1, 2, 4, 8


class Facts(NamedTuple):
    """What one step showed, as sets of rows."""

    without_gradient: set[int]  # all gradients are exactly zero
    candidates: set[int]  # the query is a point of the ball that the search network gets wrong (or as targeted)
    done: set[int]  # the budget is spent


@dataclass
class UnreadStep:
    """A step whose facts are on their way to the host.

    Args:
        rows: that were in flight and have not left their slots since.
        before: the state that was queried.
        after: the state after the step.
        backwards: gradients computed for each row.
        packed: `[B]` uint8 the facts, in the host's memory.
        arrived: when they are there; None on a CPU.
    """

    rows: list[int]
    before: State
    after: State
    backwards: int
    packed: Tensor
    arrived: torch.cuda.Event | None

    @classmethod
    def of(cls, rows: list[int], attack: Attack, before: State, seen: Seen, after: State, *, judged: bool) -> Self:
        """Pack the facts and send them to the host, which does not wait for them.

        Args:
            rows: in flight.
            attack: which took the step.
            before: the state that was queried.
            seen: the answers.
            after: the state after the step.
            judged: whether a query that the network gets wrong is a candidate.
        """
        device = after.done.device
        packed = _packed(attack, before, seen, after, judged=judged).to("cpu", non_blocking=True)
        arrived = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None
        return cls(rows, before, after, seen.backwards, packed, arrived)

    def read(self, attack: Attack, trials: Sequence[Trial | None]) -> Facts:
        """The facts about the rows, once they have arrived.

        Args:
            attack: which took the step.
            trials: in all slots, to name an image.

        Raises:
            UserError: the gradient of an image is NaN or infinite; the attack is named where its query is.
        """
        if self.arrived is not None:
            self.arrived.synchronize()
        packed: list[int] = self.packed.tolist()
        for row in self.rows:
            if packed[row] & _INFINITE and (trial := trials[row]) is not None:
                sample, one = trial.job.sample, slice(row, row + 1)
                check_queries(attack, self.before.query[one], self.before.queries[one].tolist(), [sample])
                raise gradient_not_finite(attack, sample)
        return Facts(*({row for row in self.rows if packed[row] & bit} for bit in (_ZERO, _CANDIDATE, _DONE)))


def _packed(attack: Attack, before: State, seen: Seen, after: State, *, judged: bool) -> Tensor:
    """`[B]` uint8: one bit for each fact."""
    packed = after.done * _DONE
    if seen.backwards:
        grads = seen.all_grads.flatten(1)
        packed = packed + ~grads.isfinite().all(1) * _INFINITE + (grads == 0).all(1) * _ZERO
    if judged:
        rows = torch.arange(len(seen.label), device=seen.label.device)
        packed = packed + (lost_rows(before.trial, seen.label) & attack.inside(before, seen, rows)) * _CANDIDATE
    return packed.to(torch.uint8)
