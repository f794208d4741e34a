"""Forward hooks on chosen layers inside a context: all are installed or none, and all are removed, also after an error.

Module backward hooks are not used: they wrap a module's inputs and outputs in views, so that in-place operations after
them fail, and in many cases they are never called (docs/hooks/module-backward-hooks.md).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch import nn

from robustkit.errors import UserError
from robustkit.nethook.errors import UnfiredLayerError
from robustkit.nethook.hookable import check_checkpoint, check_hookable, why_silent
from robustkit.nethook.names import Layers, select, unwrap


class Inputs(NamedTuple):
    """The arguments of a layer call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class Visit:
    """One run of one layer."""

    name: str
    module: nn.Module
    call: int  # which run of the layer within this forward pass of the model, from 0
    replay: bool  # repeated by a checkpoint, in backward
    grad_wanted: bool  # gradients were on when the model's forward began, even if they are off at the layer
    memo: Any = None  # passes a value from `before` to `after`


class Probe(Protocol):
    """What happens at each run of a layer."""

    def before(self, visit: Visit, inputs: Inputs) -> Inputs | None:
        """Returns other arguments for the layer, or None to keep them."""

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Any:
        """Returns another output, or None to keep it."""


@contextmanager
def hooked(
    model: nn.Module,
    layers: Layers,
    probe: Probe,
    *,
    strict: bool = True,
    follows_grad: bool = False,
    edits: bool = True,
    first: bool = False,
) -> Iterator["RunCounter"]:
    """Call `probe` before and after each run of the chosen layers inside the context.

    Args:
        model: the network; wrappers are stripped.
        layers: as for `select`.
        probe: not called for layers that the probe itself runs.
        strict: each layer must have run by the end; for "*", at least one layer.
        follows_grad: the probe needs the graph at the layer.
        edits: the probe may change values; otherwise it does not see runs that a checkpoint repeats in backward.
        first: call `after` before the forward hooks that the layer already has.

    Raises:
        UnfiredLayerError: at the end, if `strict` is not met and no other exception was raised.
    """
    counter = RunCounter(model, layers, probe, follows_grad, edits)
    with ExitStack() as stack:
        counter.install(stack, first)
        yield counter
    if strict:
        counter.check_fired(every=layers != "*")


class RunCounter:
    """Counts the runs of each layer, and calls a probe around them."""

    def __init__(self, model: nn.Module, layers: Layers, probe: Probe, follows_grad: bool, edits: bool) -> None:
        self.model, self.probe, self.follows_grad, self.edits = model, probe, follows_grad, edits
        self.layers = select(model, layers)
        check_hookable(model, self.layers)
        self.fired: set[str] = set()
        self._runs = dict.fromkeys(self.layers, 0)
        self._replays: dict[str, int] | None = None
        self._grad_at_start: bool | None = None
        self._open: list[Visit] = []
        self._in_probe = False

    def install(self, stack: ExitStack, first: bool) -> None:
        """Install all hooks; `stack` removes them when it closes."""
        stack.enter_context(unwrap(self.model).register_forward_pre_hook(self._forward_begins))
        for name, module in self.layers.items():
            before, after = _LayerHooks(self, name).before, _LayerHooks(self, name).after
            stack.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
            stack.enter_context(module.register_forward_hook(after, with_kwargs=True, prepend=first))

    def check_fired(self, every: bool) -> None:
        """Raise UnfiredLayerError if no layer ran, or, with `every`, if any layer did not."""
        silent = [name for name in self.layers if name not in self.fired]
        if silent and (every or not self.fired):
            more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
            raise UnfiredLayerError(
                f"Layer {silent[0]!r}{more} never ran inside the context: {why_silent(self.model, silent[0])}."
            )

    def enter(self, name: str, module: nn.Module, inputs: Inputs) -> Inputs | None:
        """A layer starts."""
        if self._ignored():
            return None
        if module is not self.layers[name]:
            raise UserError(
                f"Layer {name!r} runs as a replica on another device; run the model that "
                "robustkit.nethook.unwrap(model) returns, on one device."
            )
        replay = in_backward()
        if self.follows_grad and not torch.is_grad_enabled():
            check_checkpoint(name)
        started = self._grad_at_start
        wanted = torch.is_grad_enabled() if started is None else started
        visit = Visit(name, module, self._run_index(name, replay), replay, wanted or torch.is_grad_enabled())
        self._open.append(visit)
        changed: Inputs | None = self._in_probe_call(lambda: self.probe.before(visit, inputs))
        return changed

    def leave(self, name: str, module: nn.Module, inputs: Inputs, output: Any) -> Any:
        """A layer ends."""
        if self._ignored():
            return None
        # Runs that ended with an exception which the model caught are still on the stack.
        while self._open and self._open[-1].module is not module:
            self._open.pop()
        if not self._open:
            return None  # it started before the context was opened
        visit = self._open.pop()
        self.fired.add(name)
        return self._in_probe_call(lambda: self.probe.after(visit, inputs, output))

    def _ignored(self) -> bool:
        return self._in_probe or (not self.edits and in_backward())

    def _in_probe_call(self, act: Callable[[], Any]) -> Any:
        # A replacement or an edit may call the layer that it replaces.
        self._in_probe = True
        try:
            return act()
        finally:
            self._in_probe = False

    def _forward_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._in_probe:
            return
        if in_backward():
            self._replays = dict.fromkeys(self.layers, 0)
        else:
            self._runs, self._replays = dict.fromkeys(self.layers, 0), None
            self._grad_at_start = torch.is_grad_enabled()

    def _run_index(self, name: str, replay: bool) -> int:
        if replay and self._replays is None:
            if self._runs[name] != 1:
                raise UserError(
                    f"Layer {name!r} runs {self._runs[name]} times, and it is unknown which run a checkpoint repeats; "
                    "do not use checkpointing here."
                )
            return 0
        counts = self._replays if replay and self._replays is not None else self._runs
        counts[name] += 1
        return counts[name] - 1

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise UserError("A model is copied with hooks on it, which would remain active; leave the context first.")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UserError("A model is saved with hooks on it; leave the context first.")


class _LayerHooks(NamedTuple):
    """The hooks of one layer, with its name, which torch does not pass to hooks."""

    counter: RunCounter
    name: str

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs | None:
        return self.counter.enter(self.name, module, Inputs(args, kwargs))

    def after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        return self.counter.leave(self.name, module, Inputs(args, kwargs), output)


def active_edits(module: nn.Module) -> list[Probe]:
    """The probes that may change values or gradients at a module now; those of a `Trace` without `edit` do not."""
    owners = [getattr(hook, "__self__", None) for hook in module._forward_hooks.values()]
    return [each.counter.probe for each in owners if isinstance(each, _LayerHooks) and each.counter.edits]


def in_backward() -> bool:
    """Whether a backward pass runs on this thread; a layer that runs now is repeated by a checkpoint."""
    return torch._C._current_graph_task_id() != -1
