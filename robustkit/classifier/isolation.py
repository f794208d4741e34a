"""Keeps the caller's model and random state unchanged while robustkit uses the model."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from robustkit.classifier.generators import seed_torch
from robustkit.classifier.recurrent import differentiable_recurrences
from robustkit.errors import UserError
from robustkit.host.alone import alone
from robustkit.nethook.hookable import runs_compiled_code
from robustkit.nethook.restore import restored

# What torch says where a model's parts lie on several devices.
_APART = ("to be on the same device", "is not on the expected device")
# And where autograd meets a tensor that was made in inference mode.
_INFERENCE = ("Inference tensors cannot be saved for backward", "Inplace update to inference tensor")


@contextmanager
def answering(model: nn.Module, device: torch.device, seed: int = 0) -> Iterator[None]:
    """`untouched`, and every answer is that of the model's own code in exact arithmetic, with gradients on request.

    What the caller compiled with `torch.compile` runs as it was before: compiled code calls no hooks, is made anew for
    each batch size, and with CUDA graphs writes each answer over the last one.

    Raises:
        UserError: as for `untouched`; or the model computes on `device` with tensors of another device, or with tensors
            that were made in inference mode.
    """
    with (
        untouched(model, seed),
        torch.inference_mode(mode=False),
        exact_arithmetic(device),
        _own_code(model),
        differentiable_recurrences(model, device),
        _explained_errors(device),
    ):
        yield


@contextmanager
def _explained_errors(device: torch.device) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if any(text in str(error) for text in _INFERENCE):
            raise UserError(
                "The model computes with tensors that were made in torch.inference_mode, through which no gradient "
                "passes; remove it from the model's code, or make constants under torch.no_grad."
            ) from error
        if not any(text in str(error) for text in _APART):
            raise
        raise UserError(
            f"The model computes on {device}, where its weights are, with a tensor of another device; register such "
            "tensors as buffers (register_buffer), or leave the model on the CPU (--device cpu). "
            f"({str(error).splitlines()[0]})"
        ) from error


@contextmanager
def _own_code(model: nn.Module) -> Iterator[None]:
    """What was compiled by `torch.compile` runs as it was before."""
    # Not without need: the stance breaks torch.cond, and importing the compiler takes seconds.
    if "torch._dynamo" not in sys.modules or not runs_compiled_code(model):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def untouched(model: nn.Module, seed: int = 0) -> Iterator[None]:
    """Put `model` in eval mode and seed torch's global generator; restore both at the end, also after an exception.

    Restored are modes, buffers, `requires_grad`, `.grad` and the global random state, but not the values of weights.
    One thread at a time: a second one, with whatever model, waits until the first has restored all of this.

    Raises:
        UserError: a normalisation layer would use the statistics of the batch, so that the output for an image would
            depend on the other images.
    """
    with alone(), restored(model, weights=False):
        seed_torch(seed)
        with suppress(NotImplementedError):  # the module of an exported program has no modes
            model.eval()
        _check_eval(model)
        yield


@contextmanager
def exact_arithmetic(device: torch.device) -> Iterator[None]:
    """Full fp32 precision and deterministic kernels: no TF32, no benchmarking of kernels, no autocast of the caller.

    On a GPU torch rounds convolutions to TF32 by default, and a verdict would then be about another network.
    """
    with torch.autocast(device.type, enabled=False), products(device, tf32=False):
        yield


@contextmanager
def products(device: torch.device, *, tf32: bool, deterministic: bool = True) -> Iterator[None]:
    """Convolutions and products of matrices in TF32, on a GPU that has it, or in full fp32."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with torch.backends.cudnn.flags(
            torch.backends.cudnn.enabled, benchmark=False, deterministic=deterministic, allow_tf32=tf32
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check_eval(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.training:
                raise UserError(
                    f"BatchNorm layer {name!r} stays in train mode after model.eval(), so an image's output would "
                    "depend on its batch; let eval() reach it (some models override train() to prevent this)."
                )
            if module.running_mean is None:
                raise UserError(
                    f"BatchNorm layer {name!r} has no running statistics and uses those of the batch, so an image's "
                    "output would depend on its batch; build it with track_running_stats=True."
                )
