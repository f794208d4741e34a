"""Contexts that restore a model and the random state."""

import random
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def restored(model: nn.Module, *, weights: bool = True) -> Iterator[nn.Module]:
    """Restore the model and the random state at the end, also after an exception.

    Restored are parameters and buffers, `.grad` and `requires_grad`, the train or eval mode of each module and the
    global random state. The same tensor objects return with their values, so optimizers and tied weights remain valid.
    Hooks and replaced modules are not undone.

    Args:
        model: the network.
        weights: copy and restore the values of parameters as well, which takes the memory of a second set of weights.
    """
    modules = [_ModuleState.of(module) for module in model.modules()]
    buffers = {id(tensor) for module in modules for tensor in module.buffers.values()}
    tensors = {id(tensor): tensor for module in modules for tensor in module.tensors()}
    states = [_TensorState.of(tensor, values=weights or key in buffers) for key, tensor in tensors.items()]
    with restored_random_state():
        try:
            yield model
        finally:
            restore_modes([(each.module, each.training) for each in modules if each.training is not None])
            for module in modules:
                module.restore()
            for state in states:
                state.restore()


def restore_modes(before: Sequence[tuple[nn.Module, bool]]) -> None:
    """Put modules back into the modes that they had.

    Args:
        before: modules with their `training`, each after those that contain it, as `modules()` yields them.
    """
    for module, training in before:
        # LoRA's layers add their update to the weight in eval mode: with the flag alone it would stay there.
        if module.training != training and getattr(module.train, "__func__", None) is not nn.Module.train:
            module.train(training)
    for module, training in before:
        module.training = training


@contextmanager
def restored_random_state() -> Iterator[None]:
    """Restore the global generators of torch, numpy and Python at the end, also after an exception."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@dataclass(frozen=True)
class _ModuleState:
    module: nn.Module
    training: bool | None
    parameters: dict[str, nn.Parameter | None]
    buffers: dict[str, Tensor | None]
    not_saved: frozenset[str]  # names of buffers that are no part of the state dict

    @staticmethod
    def of(module: nn.Module) -> "_ModuleState":
        not_saved = frozenset(module._non_persistent_buffers_set)
        # A frozen TorchScript module has no such attribute.
        training = getattr(module, "training", None)
        return _ModuleState(module, training, dict(module._parameters), dict(module._buffers), not_saved)

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (*self.parameters.values(), *self.buffers.values()) if tensor is not None]

    def restore(self) -> None:
        _restore_entries(self.module._parameters, self.parameters)
        _restore_entries(self.module._buffers, self.buffers)
        # A name that stays here would silently be left out of the state dict when a saved buffer takes it.
        if self.module._non_persistent_buffers_set != self.not_saved:
            self.module._non_persistent_buffers_set = set(self.not_saved)


@dataclass(frozen=True)
class _TensorState:
    tensor: Tensor
    values: "_Values | None"  # None if they are not restored
    requires_grad: bool
    grad: "_Values | None"

    @staticmethod
    def of(tensor: Tensor, values: bool) -> "_TensorState":
        grad = tensor.grad if tensor.is_leaf else None
        return _TensorState(
            tensor,
            _Values.of(tensor) if values else None,
            tensor.requires_grad,
            None if grad is None else _Values.of(grad),
        )

    def restore(self) -> None:
        if self.values is not None:
            self.values.restore()
        if self.grad is not None:
            # A weight whose values are not restored stays moved or cast, and its gradient has to stay with it.
            self.grad.restore(memory=self.values is not None)
        if self.tensor.is_leaf:
            if self.tensor.requires_grad != self.requires_grad:
                self.tensor.requires_grad_(self.requires_grad)
            grad = None if self.grad is None else self.grad.tensor
            if self.tensor.grad is not grad:
                self.tensor.grad = grad


@dataclass(frozen=True)
class _Values:
    """The values of a tensor and the memory they were in."""

    tensor: Tensor
    data: Tensor  # shares memory with the tensor
    copy: Tensor

    @staticmethod
    def of(tensor: Tensor) -> "_Values":
        return _Values(tensor, tensor.detach(), tensor.detach().clone())

    def restore(self, memory: bool = True) -> None:
        """Give the tensor its values again, and with `memory` also the memory that it had."""
        if memory and (self.tensor.data_ptr() != self.data.data_ptr() or self.tensor.dtype != self.data.dtype):
            # The tensor was moved or cast, as `model.to` does; its old memory still exists.
            self.tensor.data = self.data
        _overwrite(self.data if memory else self.tensor.detach(), self.copy)


def _restore_entries(entries: MutableMapping[str, Any], before: dict[str, Any]) -> None:
    # Scripted modules have mappings that cannot be cleared; their entries can only be assigned.
    if list(entries.keys()) != list(before):
        entries.clear()
        entries.update(before)
    for name, tensor in before.items():
        if entries[name] is not tensor:
            entries[name] = tensor


def _overwrite(tensor: Tensor, values: Tensor) -> None:
    # A write would invalidate graphs that were made before, so nothing is written where nothing changed.
    if not torch.equal(tensor, values):
        with torch.no_grad():
            tensor.copy_(values)
