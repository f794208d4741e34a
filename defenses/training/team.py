"""The processes of one training, which share every batch and exchange gradients, statistics and errors.

All waiting is in this class, and whenever processes meet, each one reports whether it has failed: an error of one ends
all instead of leaving the others waiting for ever. `learner` says what is exchanged within a step.

Three things differ from a single process: BatchNorm in train mode normalizes by a process's share of the batch, its
running statistics become the mean over processes after every step, and each process draws its own dropout. Everything
else is the same for any number of processes, up to the order of sums.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from robustkit.errors import UserError

from ..inner_attack.diverged import Diverged
from ..weights.batchnorm import norms_of

_T = TypeVar("_T")
_NUMBERS = 2  # sent along whenever processes meet


class _OtherProcessError(Exception):
    """Another process failed, and all know. Not a `UserError`, so that no caller on the way adds to its text."""

    def __init__(self, error: UserError) -> None:
        super().__init__(str(error))
        self.error = error


class Team:
    """The processes of one training; with a single process no method waits, sends or copies.

    Args:
        rank: number of this process, from 0.
        size: how many there are.
        device: where its network is.
        control: the group that exchanges numbers and texts between CPUs.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, device: torch.device | None = None,
        control: "dist.ProcessGroup | None" = None,
    ) -> None:  # fmt: skip
        self.rank, self.size, self.device, self._control = rank, size, device, control
        # Tensors on a GPU are exchanged in torchrun's default group, gloo or nccl.
        self.tensors = control if device is None or device.type == "cpu" else None
        self._exchanging = False  # tensors are on their way, so this process cannot report an error

    @property
    def alone(self) -> bool:
        """Whether there is only one process."""
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Which of a batch's `count` images this process learns from: all if the batch is too small to be shared."""
        # Every size-th image, so that the k-th image of any batch belongs to the same process.
        return slice(None) if self.copies(count) > 1 else self.own(count)

    def own(self, count: int) -> slice:
        """Which of them only this process counts."""
        return slice(self.rank, count, self.size)

    def copies(self, count: int) -> int:
        """How many processes learn from each image of a batch of this size."""
        return self.size if count < 2 * self.size else 1

    def ready(self) -> None:
        """Wait until all processes have called this.

        Raises:
            Exception: another one failed before; only `fail_together` may catch it.
        """
        if not self.alone:
            self._meet(None)

    def sum_numbers(self, first: float, second: float) -> tuple[float, float]:
        """Two numbers, added up over all processes."""
        if self.alone:
            return first, second
        first, second = self._meet(None, first, second)
        return first, second

    def from_first(self, work: Callable[[], _T]) -> _T:
        """The result of `work` in the first process, sent to all; it must not hold tensors on a GPU."""
        if self.alone:
            return work()
        box = [work() if self.first else None]
        self.ready()
        dist.broadcast_object_list(box, 0, group=self._control)
        return box[0]  # type: ignore[return-value]

    def in_turn(self, work: Callable[[bool], _T]) -> _T:
        """The result of `work`, called in one process of each machine before the others.

        For work that leaves files for the others, such as a download.

        Args:
            work: its argument is True in the process that goes first.
        """
        leads = self.alone or int(os.environ.get("LOCAL_RANK", self.rank)) == 0
        result = [work(True)] if leads else []
        self.ready()
        return result[0] if leads else work(False)

    def require_same(
        self, what: Callable[[], Mapping[str, Any]], differs: Callable[[Any, Mapping[str, Any]], str | None]
    ) -> None:
        """Refuse processes whose settings differ.

        Args:
            what: returns the settings of this process, as plain values.
            differs: the name of the first difference between two settings, or None.

        Raises:
            UserError: the sentence names it.
        """
        if self.alone:
            return
        own = dict(what())
        self.ready()
        every = self._gathered(own)
        for number, other in enumerate(every):
            difference = differs(every[0], other)
            if difference is not None:
                raise UserError(
                    f"Process {number} was given another training than process 0 (its {difference} differs); give "
                    "all the same, or start one process."
                )

    def check_devices(self) -> None:
        """Refuse two processes on one GPU, and a mixture of CPUs and GPUs.

        Raises:
            UserError: the sentence names the fix.
        """
        every = self._gathered((socket.gethostname(), str(self.device)))
        kinds = {torch.device(device).type for _, device in every}
        if len(kinds) > 1 or ("cuda" in kinds and len(set(every)) < len(every)):
            raise UserError(
                f"The processes have their models on {', '.join(device for _, device in every)}; move each to a GPU of "
                "its own, model.to(f'cuda:{LOCAL_RANK}'), or all to the CPU."
            )

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Copy the first process's values into the tensors of all, bit for bit."""
        if not self.alone:
            self.ready()
            self._broadcast(list(tensors))

    def sum_tensor(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes; all give the same shape."""
        if self.alone:
            return tensor
        self.ready()
        return self._summed(tensor)

    @torch.no_grad()
    def _summed(self, tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        dist.all_reduce(tensor, group=self.tensors)
        return tensor

    @torch.no_grad()
    def _broadcast(self, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            return
        # As bytes: one message for tensors of any type.
        parts = [value.detach().to(self.device).contiguous().reshape(-1).view(torch.uint8) for value in tensors]
        flat = torch.cat(parts)
        dist.broadcast(flat, 0, group=self.tensors)
        for value, part in zip(tensors, torch.split(flat, [len(part) for part in parts]), strict=True):
            # A copy: a view as another type must start at a multiple of that type's size.
            value.copy_(part.clone().view(value.dtype).reshape(value.shape))

    @torch.no_grad()
    def gradients(self, weights: Sequence[Tensor], own: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The sum of the gradients over all processes; None where no process has one."""
        if self.alone:
            return list(own)
        present = torch.tensor([float(grad is not None) for grad in own], device=self.device)
        filled = [torch.zeros_like(weight) if grad is None else grad for weight, grad in zip(weights, own, strict=True)]
        flat = self.sum_tensor(torch.cat([present.to(filled[0]), *(grad.reshape(-1) for grad in filled)]))
        counts, *sums = torch.split(flat, [len(own), *(weight.numel() for weight in weights)])
        return [part.view_as(weight) if count else None
                for count, part, weight in zip(counts.tolist(), sums, weights, strict=True)]  # fmt: skip

    @torch.no_grad()
    def synchronize_buffers(self, network: nn.Module, share: float) -> None:
        """Give all processes the same buffers: the mean of running statistics in train mode, else the first one's.

        Call it right after an exchange, when no process can have failed since.

        Args:
            network: after a step in train mode.
            share: of the step's images that this process is responsible for.
        """
        if self.alone:
            return
        moved = [norm for norm in norms_of(network) if norm.training and norm.running_mean is not None]
        statistics = [value for norm in moved for value in (norm.running_mean, norm.running_var) if value is not None]
        if statistics:
            # In float64, where the mean of equal values is exactly that value.
            own = torch.cat([value.double() for value in statistics]) * share
            sums = torch.split(self._summed(own), [len(value) for value in statistics])
            for value, mean in zip(statistics, sums, strict=True):
                value.copy_(mean)
        done = {id(value) for value in statistics}
        self._broadcast([value for value in network.buffers() if id(value) not in done])

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Wait for all; while the context lasts they exchange tensors, and a process that fails in it has to end."""
        self.ready()
        self._exchanging = True
        yield
        self._exchanging = False

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """An error in one process ends the context in all; those without an error of their own raise a `UserError`.

        Raises:
            UserError: another process failed or has ended.
        """
        try:
            yield
            self.ready()
        except _OtherProcessError as error:
            raise error.error from None
        except Exception as error:
            # During an exchange the others wait for tensors and could not receive the report.
            if not self.alone and not self._exchanging:
                with suppress(_OtherProcessError):
                    self._meet(error)
            raise

    def wait_for_others(self) -> None:
        """Wait for the others before this process ends, unless they have ended."""
        with suppress(_OtherProcessError):
            self.ready()

    def _meet(self, failed: Exception | None, *numbers: float) -> tuple[float, ...]:
        """Meet all processes; each reports whether it failed, and some numbers, which are summed."""
        box = torch.zeros(1 + _NUMBERS, dtype=torch.float64, device="cpu")
        box[0] = float(failed is not None)
        box[1 : 1 + len(numbers)] = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        try:
            dist.all_reduce(box, group=self._control)
            if not box[0]:
                return tuple(box[1:].tolist())
            reports = self._gathered(None if failed is None else (isinstance(failed, Diverged), self._sentence(failed)))
        except RuntimeError:
            raise _OtherProcessError(
                UserError("Another process of this training was ended; start all again.")
            ) from None
        diverged, sentence = next(each for each in reports if each is not None)
        raise _OtherProcessError(Diverged(sentence) if diverged else UserError(sentence))

    def _sentence(self, error: Exception) -> str:
        if isinstance(error, UserError):
            return str(error)
        reason = str(error).strip().split("\n")[0].rstrip(".")
        return f"Process {self.rank} of the training failed ({type(error).__name__}: {reason})."

    def _gathered(self, own: object) -> list[Any]:
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, own, group=self._control)
        return every


ALONE = Team()
