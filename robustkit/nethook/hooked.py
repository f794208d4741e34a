"""Own forward hooks on chosen layers while a context lasts: all of them or none, and gone on every way out.

Module backward hooks are not used: they wrap a module's inputs and outputs in views, so that in-place operations after
them fail, and they stay silent in many cases (docs/hooks/module-backward-hooks.md).
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
    """What a layer is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class Visit:
    """One run of one layer."""

    name: str
    module: nn.Module
    call: int  # which run of the layer within this forward pass of the model, from 0
    replay: bool  # run again by a checkpoint, in backward
    grad_wanted: bool  # gradients were on as the model's forward began, whatever they are at the layer
    memo: Any = None  # what `before` leaves for `after`


class Probe(Protocol):
    """What is done at each run of a layer; None changes nothing."""

    def before(self, visit: Visit, inputs: Inputs) -> Inputs | None:
        """May replace what goes in."""

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Any:
        """May replace what comes out."""


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
    """Let `probe` see each run of the chosen layers while the context lasts.

    Args:
        model: the network; wrappers are stripped.
        layers: as for `select`.
        probe: called around each run, except within its own calls.
        strict: whether each layer must have run by the end, or one of them for "*".
        follows_grad: whether the probe needs the graph at the layer.
        edits: whether the probe changes anything; else runs that a checkpoint repeats in backward are not shown to it.
        first: whether `after` comes before all hooks that are there already; else in the order of the contexts.

    Raises:
        UnfiredLayerError: at the end, if no other error is on its way.
    """
    watch = RunCounter(model, layers, probe, follows_grad, edits)
    with ExitStack() as stack:
        watch.install(stack, first)
        yield watch
    if strict:
        watch.check_fired(every=layers != "*")


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
        self._busy = False

    def install(self, stack: ExitStack, first: bool) -> None:
        """Place all hooks, to be removed as `stack` closes."""
        stack.enter_context(unwrap(self.model).register_forward_pre_hook(self._begins))
        for name, module in self.layers.items():
            before, after = _Hook(self, name).before, _Hook(self, name).after
            stack.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
            stack.enter_context(module.register_forward_hook(after, with_kwargs=True, prepend=first))

    def check_fired(self, every: bool) -> None:
        """Raise UnfiredLayerError if a layer, or all of them, never ran."""
        silent = [name for name in self.layers if name not in self.fired]
        if silent and (every or not self.fired):
            more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
            raise UnfiredLayerError(
                f"Layer {silent[0]!r}{more} never ran inside the context: {why_silent(self.model, silent[0])}."
            )

    def enter(self, name: str, module: nn.Module, inputs: Inputs) -> Inputs | None:
        """A layer starts."""
        if self._blind():
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
        visit = Visit(name, module, self._number(name, replay), replay, wanted or torch.is_grad_enabled())
        self._open.append(visit)
        changed: Inputs | None = self._quietly(lambda: self.probe.before(visit, inputs))
        return changed

    def leave(self, name: str, module: nn.Module, inputs: Inputs, output: Any) -> Any:
        """A layer ends."""
        if self._blind():
            return None
        # Runs that broke off with an error the model caught are still on the pile.
        while self._open and self._open[-1].module is not module:
            self._open.pop()
        if not self._open:
            return None  # it had begun before the context was opened
        visit = self._open.pop()
        self.fired.add(name)
        return self._quietly(lambda: self.probe.after(visit, inputs, output))

    def _blind(self) -> bool:
        return self._busy or (not self.edits and in_backward())

    def _quietly(self, act: Callable[[], Any]) -> Any:
        # A surrogate or an edit may call the very layer it stands for.
        self._busy = True
        try:
            return act()
        finally:
            self._busy = False

    def _begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._busy:
            return
        if in_backward():
            self._replays = dict.fromkeys(self.layers, 0)
        else:
            self._runs, self._replays = dict.fromkeys(self.layers, 0), None
            self._grad_at_start = torch.is_grad_enabled()

    def _number(self, name: str, replay: bool) -> int:
        if replay and self._replays is None:
            if self._runs[name] != 1:
                raise UserError(
                    f"Layer {name!r} runs {self._runs[name]} times, and a checkpoint that repeats one run does not say "
                    "which; do without checkpointing."
                )
            return 0
        counts = self._replays if replay and self._replays is not None else self._runs
        counts[name] += 1
        return counts[name] - 1

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise UserError("A model is copied with hooks on it, which would go on watching; leave the context first.")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UserError("A model is saved with hooks on it; leave the context first.")


class _Hook(NamedTuple):
    """A layer's name, which torch does not hand to a hook."""

    watch: RunCounter
    name: str

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs | None:
        return self.watch.enter(self.name, module, Inputs(args, kwargs))

    def after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        return self.watch.leave(self.name, module, Inputs(args, kwargs), output)


def in_backward() -> bool:
    """Whether autograd is at work on this thread: a layer that runs now is repeated by a checkpoint."""
    return torch._C._current_graph_task_id() != -1
