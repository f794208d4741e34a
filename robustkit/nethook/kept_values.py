"""What a backward pass needs, kept where code that has no backward pass writes over it."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


@dataclass(eq=False)
class _Kept:
    value: Tensor


class KeptValues:
    """Copies of what is saved for a backward pass, made only before it is written into."""

    def __init__(self) -> None:
        self._in_memory: dict[int, list[weakref.ref[_Kept]]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keep what the operations inside save."""
        with saved_tensors_hooks(self._keep, lambda kept: kept.value):
            yield

    def before_writing(self, target: object) -> None:
        """Copy what is saved in the memory of a tensor."""
        for each in self._in_memory.pop(_memory(target), ()) if self._in_memory else ():
            kept = each()
            if kept is not None:
                kept.value = kept.value.clone()

    def _keep(self, value: Tensor) -> _Kept:
        kept = _Kept(value.detach())  # an output would keep its own graph alive
        self._in_memory.setdefault(_memory(value), []).append(weakref.ref(kept))
        return kept


def _memory(value: object) -> int:
    """Where a tensor lies; 0 for those without one place in memory."""
    try:
        return value.untyped_storage().data_ptr() if isinstance(value, Tensor) else 0
    except (NotImplementedError, RuntimeError):  # sparse, or a tensor of `torch.func`
        return 0
