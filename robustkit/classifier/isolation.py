"""The caller's model comes back as it was: modes, buffers, `requires_grad`, `.grad` and the global random state."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn

from robustkit.errors import UserError


@contextmanager
def untouched(model: nn.Module, seed: int = 0) -> Iterator[None]:
    """Put `model` in eval mode and seed torch's global generator; restore everything on exit, also after an exception.

    Raises:
        UserError: a normalisation layer stays in train mode, so that images would feel their neighbours.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(module, name, buffer, None if buffer is None else buffer.clone())
               for module in model.modules() for name, buffer in module._buffers.items()]  # fmt: skip
    weights = [(weight, weight.requires_grad, weight.grad, None if weight.grad is None else weight.grad.clone())
               for weight in model.parameters()]  # fmt: skip
    others = random.getstate(), np.random.get_state()  # what models may draw from besides torch
    with torch.random.fork_rng(devices=_devices(model)):
        torch.manual_seed(seed)
        try:
            model.eval()
            _check_eval(model)
            yield
        finally:
            random.setstate(others[0])
            np.random.set_state(others[1])
            for module, training in modes:
                module.training = training
            for module, name, buffer, values in buffers:
                module._buffers[name] = buffer
                if buffer is not None and values is not None:
                    with torch.no_grad():
                        buffer.copy_(values)
            for weight, requires_grad, grad, values in weights:
                weight.requires_grad_(requires_grad)
                weight.grad = grad
                if grad is not None and values is not None:
                    with torch.no_grad():
                        grad.copy_(values)


@contextmanager
def exact_arithmetic(device: torch.device) -> Iterator[None]:
    """True fp32 and repeatable kernels while the context lasts: no TF32, no tuning by trial, no caller's autocast.

    On a GPU torch rounds convolutions to TF32 by default, and a verdict would then be about another network.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":
            flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
            stack.enter_context(flags)
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
        yield


def _devices(model: nn.Module) -> list[int]:
    return sorted({weight.device.index or 0 for weight in model.parameters() if weight.device.type == "cuda"})


def _check_eval(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.training:
                raise UserError(
                    f"BatchNorm layer {name!r} stays in train mode after model.eval(), so images would feel their "
                    "neighbours; let eval() reach it (some models override train() to stop this)."
                )
            if module.running_mean is None:
                raise UserError(
                    f"BatchNorm layer {name!r} keeps no running statistics and uses those of the batch, so images "
                    "would feel their neighbours; build it with track_running_stats=True."
                )
