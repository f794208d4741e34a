"""One training in several processes, as `torchrun` starts them: each learns from its share of every batch.

Processes wait for each other here only, and with word of whether all got there, so that an error of one is an error
of all and not a wait for ever. `learner` has what is exchanged within a step.

What differs from one process: BatchNorm in train mode normalises by a process's share of the batch (its running
statistics become the mean over processes after every step), and dropout is drawn by each process. All else is the
same up to the order of sums, with any number of processes.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from robustkit.errors import UserError

from ..inner_attack.diverged import Diverged
from ..weights.batchnorm import norms_of

_T = TypeVar("_T")
_PATIENCE = timedelta(days=20)  # others wait while the first reports; a process that dies is noticed at once
_NUMBERS = 2  # that travel with the word of who got there


class _ElsewhereError(Exception):
    """Another process failed; all of them know. No `UserError`, so that nobody on the way adds words to it."""

    def __init__(self, meant: UserError) -> None:
        super().__init__(str(meant))
        self.meant = meant


class Team:
    """The processes of one training; of one alone, nothing below waits, sends or copies anything.

    Args:
        rank: number of this process, from 0.
        size: how many there are.
        device: where its network is.
        control: the group in which numbers and words travel, from CPU to CPU.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, device: torch.device | None = None,
        control: "dist.ProcessGroup | None" = None,
    ) -> None:  # fmt: skip
        self.rank, self.size, self.device, self._control = rank, size, device, control
        # Tensors on a GPU travel in the group that torchrun's processes are, gloo or nccl.
        self.tensors = control if device is None or device.type == "cpu" else None
        self._apart = False  # in the middle of an exchange of tensors

    @property
    def alone(self) -> bool:
        """Whether there is but one process."""
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Which of a batch's `count` images this process learns from: all, where else some had one or none."""
        # Every size-th one, so that the k-th image of any batch falls to the same process.
        return slice(None) if self.copies(count) > 1 else self.own(count)

    def own(self, count: int) -> slice:
        """Those that no other process answers for."""
        return slice(self.rank, count, self.size)

    def copies(self, count: int) -> int:
        """How many processes learn from each image of such a batch."""
        return self.size if count < 2 * self.size else 1

    def ready(self) -> None:
        """Wait until all processes are here.

        Raises:
            Exception: another one failed on its way; only `one_fate` may catch it.
        """
        if not self.alone:
            self._met(None)

    def added(self, first: float, second: float) -> tuple[float, float]:
        """Two numbers, added up over all processes."""
        if self.alone:
            return first, second
        first, second = self._met(None, first, second)
        return first, second

    def from_first(self, work: Callable[[], _T]) -> _T:
        """What the first process finds, in all of them; only there is any work done. No tensors on a GPU."""
        if self.alone:
            return work()
        box = [work() if self.first else None]
        self.ready()
        dist.broadcast_object_list(box, 0, group=self._control)
        return box[0]  # type: ignore[return-value]

    def in_turn(self, work: Callable[[bool], _T]) -> _T:
        """What `work` returns, done by one process of each machine before the others; it is told whether it leads.

        For what leaves files behind that the others then find, such as a download.
        """
        leads = self.alone or int(os.environ.get("LOCAL_RANK", self.rank)) == 0
        found = [work(True)] if leads else []
        self.ready()
        return found[0] if leads else work(False)

    def same(
        self, what: Callable[[], Mapping[str, Any]], differs: Callable[[Any, Mapping[str, Any]], str | None]
    ) -> None:
        """Refuse processes that were given different things.

        Args:
            what: plain values.
            differs: names what two of these differ in.

        Raises:
            UserError: the sentence names it.
        """
        if self.alone:
            return
        own = dict(what())
        self.ready()
        every = self._gathered(own)
        for number, other in enumerate(every):
            apart = differs(every[0], other)
            if apart is not None:
                raise UserError(
                    f"Process {number} was given another training than process 0 (its {apart} differs); give all the "
                    "same, or start one process."
                )

    def check_devices(self) -> None:
        """Refuse two processes on one GPU, and a mixture of kinds.

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

    def equal(self, tensors: Iterable[Tensor]) -> None:
        """Write the first process's values into the tensors of all, bit for bit."""
        if not self.alone:
            self.ready()
            self._spread(list(tensors))

    def total(self, tensor: Tensor) -> Tensor:
        """A tensor added up over all processes, each with one of the same shape."""
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
    def _spread(self, found: Sequence[Tensor]) -> None:
        if not found:
            return
        # As bytes: one message for whatever types there are.
        parts = [value.detach().to(self.device).contiguous().reshape(-1).view(torch.uint8) for value in found]
        flat = torch.cat(parts)
        dist.broadcast(flat, 0, group=self.tensors)
        for value, part in zip(found, torch.split(flat, [len(part) for part in parts]), strict=True):
            # A copy, since a view as another type must begin at a multiple of its size.
            value.copy_(part.clone().view(value.dtype).reshape(value.shape))

    @torch.no_grad()
    def gradients(self, weights: Sequence[Tensor], own: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients added up over all processes; None for weights that none has one of."""
        if self.alone:
            return list(own)
        known = torch.tensor([float(grad is not None) for grad in own], device=self.device)
        filled = [torch.zeros_like(weight) if grad is None else grad for weight, grad in zip(weights, own, strict=True)]
        flat = self.total(torch.cat([known.to(filled[0]), *(grad.reshape(-1) for grad in filled)]))
        counts, *sums = torch.split(flat, [len(own), *(weight.numel() for weight in weights)])
        return [part.view_as(weight) if count else None
                for count, part, weight in zip(counts.tolist(), sums, weights, strict=True)]  # fmt: skip

    @torch.no_grad()
    def blend(self, network: nn.Module, share: float) -> None:
        """Give all processes the same buffers: the mean of running statistics that moved, else the first one's.

        Right after an exchange, where nothing can have failed since.

        Args:
            network: after a step in train mode.
            share: of the step's images that this process answers for.
        """
        if self.alone:
            return
        moved = [norm for norm in norms_of(network) if norm.training and norm.running_mean is not None]
        statistics = [value for norm in moved for value in (norm.running_mean, norm.running_var) if value is not None]
        if statistics:
            # In float64, where the mean of equal values is that value again.
            own = torch.cat([value.double() for value in statistics]) * share
            sums = torch.split(self._summed(own), [len(value) for value in statistics])
            for value, mean in zip(statistics, sums, strict=True):
                value.copy_(mean)
        done = {id(value) for value in statistics}
        self._spread([value for value in network.buffers() if id(value) not in done])

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Once all are here, they exchange tensors by themselves; who fails in the middle of it has to end."""
        self.ready()
        self._apart = True
        yield
        self._apart = False

    @contextmanager
    def one_fate(self) -> Iterator[None]:
        """An error of one process ends the context in all: each raises it, `UserError` where it has none of its own.

        Raises:
            UserError: another process failed, or is gone.
        """
        try:
            yield
            self.ready()
        except _ElsewhereError as error:
            raise error.meant from None
        except Exception as error:
            # In an exchange the others wait for tensors, and would never get word of it.
            if not self.alone and not self._apart:
                with suppress(_ElsewhereError):
                    self._met(error)
            raise

    def farewell(self) -> None:
        """Wait for the others before this process ends, unless they are gone."""
        with suppress(_ElsewhereError):
            self.ready()

    def _met(self, failed: Exception | None, *numbers: float) -> tuple[float, ...]:
        """All processes meet, each with word of whether it got here and some numbers, which are added up."""
        box = torch.zeros(1 + _NUMBERS, dtype=torch.float64)
        box[0] = float(failed is not None)
        box[1 : 1 + len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
        try:
            dist.all_reduce(box, group=self._control)
            if not box[0]:
                return tuple(box[1:].tolist())
            words = self._gathered(None if failed is None else (isinstance(failed, Diverged), self._sentence(failed)))
        except RuntimeError:
            raise _ElsewhereError(UserError("Another process of this training was ended; start all again.")) from None
        diverged, sentence = next(each for each in words if each is not None)
        raise _ElsewhereError(Diverged(sentence) if diverged else UserError(sentence))

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


def several() -> bool:
    """Whether this process is one of several, by a process group or by what `torchrun` tells it."""
    if not dist.is_available():
        return False
    if dist.is_initialized():
        return dist.get_world_size() > 1
    told = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    return all(text.isdecimal() for text in told) and int(told[1]) > 1 and "MASTER_ADDR" in os.environ


def own_device(device: torch.device) -> torch.device:
    """The GPU of this process where "cuda" alone is asked for: each one has its own.

    Raises:
        UserError: there are fewer than processes here.
    """
    if device != torch.device("cuda") or not several():
        return device
    local, here = int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0"))), torch.cuda.device_count()
    if local >= here:
        raise UserError(
            f"There are {here} GPUs here, and at least {local + 1} processes; start one process for each GPU, or give "
            "--device cpu."
        )
    return torch.device("cuda", local)


@contextmanager
def processes(device: torch.device) -> Iterator[Team]:
    """All processes that take part, connected while the context lasts; one alone is a team, too.

    Args:
        device: of this process's network.

    Raises:
        UserError: they do not find each other, or share a GPU.
    """
    if not several():
        yield Team(device=device)
        return
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        made = not dist.is_initialized()
        if made:
            _connect(device)
        # A group of its own: the caller's may speak nccl alone, and has less patience.
        control: Any = dist.new_group(backend="gloo", timeout=_PATIENCE)
        stack.callback(dist.destroy_process_group, None if made else control)
        team = Team(dist.get_rank(), dist.get_world_size(), device, control)
        team.check_devices()
        yield team


def _connect(device: torch.device) -> None:
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" and dist.is_nccl_available() else "gloo")
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise UserError(
            f"The processes do not find each other ({reason}); start them with torchrun --nproc-per-node N."
        ) from None
