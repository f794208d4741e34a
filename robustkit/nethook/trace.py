"""`Trace` records the inputs and outputs of chosen layers, run by run, and the gradients with respect to the outputs.

Values are copies, and gradients are computed at the edges that the graph had when the layer ended. So an in-place ReLU
that later overwrites the layer's output changes neither.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook.call import Call, SnapshotPolicy, assign_grads
from robustkit.nethook.edits import OutputEdit
from robustkit.nethook.errors import StaleActivationError, UnfiredLayerError
from robustkit.nethook.hookable import why_silent
from robustkit.nethook.hooked import RunCounter, hooked
from robustkit.nethook.names import Layers, get_module, select
from robustkit.nethook.recorder import Recorder, Stop


class Trace:
    """A context that records the inputs, outputs and gradients of chosen layers.

        with Trace(net, ["layer3"], grad=True) as trace:
            loss = criterion(net(x), y)
            grads = trace.grad(loss)          # {"layer3": tensor}
        trace["layer3"].output

    Args:
        model: the network.
        layers: as for `select`; "*" is every layer that runs.
        output: record outputs, after `edit`.
        input: record inputs, before the layer runs.
        grad: record gradient edges, for `grad`.
        edit: `edit(output, *, name, call)` returns a replacement for the output, or None to keep it. Where a checkpoint
            repeats the layer, the backward pass must run inside the context, as with `edit_output`.
        stop: stop the forward pass, and with it the body of the context, once every chosen layer has run.
        clone: record copies, one for a tensor that several layers share; without copies, reading a value that was
            overwritten later is an error.
        detach: record values without their graph; with their graph, losses can be built on them.
        device: where values are stored, "cpu" to save GPU memory.
        reduce: `reduce(tensor, *, name, call)` returns a small tensor to record instead of each input and output.
        strict: a chosen layer that never ran is an error at the end.

    Raises:
        LayerNotFoundError: `layers` matches nothing.
        UnfiredLayerError: at the end.
        CompiledModelError, ScriptedModuleError, ReentrantCheckpointError: hooks would not be called, or see no graph.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers = "*",
        *,
        output: bool = True,
        input: bool = False,  # noqa: A002  # the word of the rest of torch
        grad: bool = False,
        edit: OutputEdit | None = None,
        stop: bool = False,
        clone: bool = True,
        detach: bool = True,
        device: torch.device | str | None = None,
        reduce: Callable[..., Tensor] | None = None,
        strict: bool = True,
    ) -> None:
        self.model = model
        self._names = select(model, layers)
        # With "*", layers that never run are ignored; every other choice, and every layer `stop` waits for, must run.
        self.layers = "*" if layers == "*" and not stop else list(self._names)
        policy = SnapshotPolicy(clone, detach, None if device is None else torch.device(device), reduce)
        self._recorder = Recorder(policy, output, input, grad, edit, Stop() if stop else None)
        self._strict = strict
        self._open: AbstractContextManager[RunCounter] | None = None

    @property
    def calls(self) -> list[Call]:
        """All runs of all chosen layers, in the order in which they ended."""
        return self._recorder.calls

    def __enter__(self) -> "Trace":
        if self._open is not None:
            raise UserError("This Trace is open already; make a second one.")
        if self._recorder.record_grad and torch.is_inference_mode_enabled():
            raise UserError(
                "Under torch.inference_mode there are no gradients; leave that mode, or trace without grad=True."
            )
        recorder = replace(self._recorder, calls=[], stopping=False)
        context = hooked(
            self.model,
            self.layers,
            recorder,
            strict=self._strict,
            follows_grad=recorder.record_grad,
            edits=recorder.edit is not None,
        )
        # Selected again, because modules may have been replaced since.
        self._names = context.__enter__().layers
        recorder.awaited = self._names.keys()
        self._open, self._recorder = context, recorder
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        context, self._open = self._open, None
        assert context is not None, "left before it was entered"
        self._recorder.policy.copies.clear()
        if error is not None and error is not self._recorder.stop:
            return bool(context.__exit__(kind, error, traceback))
        context.__exit__(None, None, None)
        if self._recorder.stopping and error is None:
            raise UserError("The model caught the exception that stops it early; use stop=False.")
        return error is not None

    def __getitem__(self, name: str) -> "Layer":
        """The runs of a layer; any name of a tied layer is valid."""
        module = self._names[name] if name in self._names else get_module(self.model, name)
        for key, chosen in self._names.items():
            if chosen is module:
                return Layer(key, module, [call for call in self.calls if call.module is module], self.model)
        raise UserError(f"Layer {name!r} is not traced; add it to layers=.")

    @property
    def unseen(self) -> tuple[str, ...]:
        """The chosen layers that have not run."""
        ran = {call.module for call in self.calls}
        return tuple(name for name, module in self._names.items() if module not in ran)

    def grad(self, loss: Tensor, *, retain_graph: bool | None = None, create_graph: bool = False) -> dict[str, Any]:
        """The gradient of `loss` with respect to each layer's last output; those of all runs are in `calls[i].grad`.

        Like torch.autograd.grad: no `.grad` of any parameter is touched.

        Args:
            loss: one number; of a loss per row take the sum, which keeps rows apart.
            retain_graph: as for torch.autograd.grad.
            create_graph: as for torch.autograd.grad.

        Returns:
            For each name, the gradient in the structure of the output; None where the loss does not depend on it,
            and for what is no tensor.
        """
        if not self._recorder.record_grad:
            raise UserError("The trace does not record gradients; open it with grad=True.")
        if loss.numel() != 1:
            raise UserError(f"grad needs one number, not {list(loss.shape)}; take loss.sum(), which keeps rows apart.")
        if not loss.requires_grad:
            raise UserError("The loss has no graph; run the model with gradients on, for an input that requires one.")
        for call in self.calls:
            if any(part._version != version for part, version in call.views):
                raise StaleActivationError(
                    f"The output of layer {call.name!r} is a view and was overwritten in place, which cuts its "
                    "gradient off; trace the layer before it, or make it return a copy."
                )
        try:
            assign_grads(self.calls, loss, retain_graph, create_graph)
        except RuntimeError as error:
            # torch raises no class of its own.
            if "backward through the graph a second time" not in str(error):
                raise
            raise UserError(
                "The graph of this loss was freed by an earlier gradient; give that one retain_graph=True, or run the "
                "model again."
            ) from error
        last = {call.name: call.grad for call in self.calls}
        return {name: last[name] for name in self._names if name in last}


@dataclass(frozen=True)
class Layer:
    """All runs of one layer; `output`, `input`, `grad` and so on are those of the last run."""

    name: str
    module: nn.Module
    calls: list[Call]
    model: nn.Module

    @property
    def last(self) -> Call:
        """The last run."""
        if not self.calls:
            raise UnfiredLayerError(f"Layer {self.name!r} never ran: {why_silent(self.model, self.name)}.")
        return self.calls[-1]

    @property
    def output(self) -> Any:
        """The output, after edits."""
        return self.last.output

    @property
    def raw(self) -> Any:
        """The output, before the trace's own edit."""
        return self.last.raw

    @property
    def input(self) -> Any:
        """The input."""
        return self.last.input

    @property
    def grad(self) -> Any:
        """The gradient with respect to the output."""
        return self.last.grad

    @property
    def edge(self) -> Any:
        """The gradient edge of the output, for torch.autograd.grad; None without a graph."""
        return self.last.edge
