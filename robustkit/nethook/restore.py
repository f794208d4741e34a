"""A model, and the random state, as they were before."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def restored(model: nn.Module) -> Iterator[nn.Module]:
    """Parameters, buffers, `.grad`, `requires_grad`, each module's mode and random states come back, whatever happens.

    The very objects come back, with their values, so that optimisers and tied weights still hold the right ones. Costs
    a copy of all weights. Hooks and replaced modules are not undone.
    """
    modules = [_Module.of(module) for module in model.modules()]
    values = {tensor: _Values.of(tensor) for module in modules for tensor in module.tensors()}
    states = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices):
        try:
            yield model
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            for module in modules:
                module.put_back()
            for tensor, value in values.items():
                value.put_back(tensor)


@dataclass(frozen=True)
class _Module:
    module: nn.Module
    training: bool
    parameters: dict[str, nn.Parameter | None]
    buffers: dict[str, Tensor | None]

    @staticmethod
    def of(module: nn.Module) -> "_Module":
        return _Module(module, module.training, dict(module._parameters), dict(module._buffers))

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (*self.parameters.values(), *self.buffers.values()) if tensor is not None]

    def put_back(self) -> None:
        self.module.training = self.training
        for now, then in ((self.module._parameters, self.parameters), (self.module._buffers, self.buffers)):
            now.clear()
            now.update(then)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Values:
    data: Tensor  # shares memory with the tensor
    copy: Tensor
    requires_grad: bool
    grad: Tensor | None
    grad_copy: Tensor | None

    @staticmethod
    def of(tensor: Tensor) -> "_Values":
        grad = tensor.grad if tensor.is_leaf else None
        copied = None if grad is None else grad.detach().clone()
        return _Values(tensor.detach(), tensor.detach().clone(), tensor.requires_grad, grad, copied)

    def put_back(self, tensor: Tensor) -> None:
        if tensor.data_ptr() != self.data.data_ptr() or tensor.dtype != self.data.dtype:
            # It was moved or cast, as `model.to` does it; the old memory is still there.
            tensor.data = self.data
        _overwrite(self.data, self.copy)
        if tensor.is_leaf:
            tensor.requires_grad_(self.requires_grad)
            tensor.grad = self.grad
        if self.grad is not None and self.grad_copy is not None:
            _overwrite(self.grad.detach(), self.grad_copy)


def _overwrite(tensor: Tensor, values: Tensor) -> None:
    # Writing would spoil graphs made before, so nothing is written where nothing changed.
    if not torch.equal(tensor, values):
        with torch.no_grad():
            tensor.copy_(values)
