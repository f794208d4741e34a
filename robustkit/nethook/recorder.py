"""What a `Trace` does at each run of a layer: keep values and edges, edit, and break the forward pass off."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import torch

from robustkit.errors import UserError
from robustkit.nethook.call import Call, Keeping, KeptValue, edges_of, views_of
from robustkit.nethook.edits import OutputEdit, checked
from robustkit.nethook.hooked import Inputs, Visit


class Stop(BaseException):
    """Breaks a forward pass off; no Exception, so that a model's own `except Exception` lets it through."""


@dataclass
class Recorder:
    """A probe that writes down each run; see `Trace` for what the options mean."""

    keeping: Keeping
    keeps_output: bool
    keeps_input: bool
    keeps_grad: bool
    edit: OutputEdit | None
    stop: Stop | None
    awaited: Set[str] = frozenset()  # layers that must have run before it stops
    calls: list[Call] = field(default_factory=list)
    stopping: bool = False

    def before(self, visit: Visit, inputs: Inputs) -> None:
        if self.keeps_input and not visit.replay:
            visit.memo = self.keeping(inputs, visit.name, visit.call)

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Any:
        kept: dict[str, KeptValue] = {} if visit.memo is None else {"input": visit.memo}
        keeps = self.keeps_output and not visit.replay
        edited = None
        if self.edit is not None:
            if keeps:
                kept["raw"] = self.keeping(output, visit.name, visit.call)
            edited = self.edit(output, name=visit.name, call=visit.call)
            output = output if edited is None else checked(output, edited, visit.name)
        if keeps:
            kept["output"] = self.keeping(output, visit.name, visit.call)
        if not visit.replay:
            self._record(visit, output, kept)
        return edited

    def _record(self, visit: Visit, output: Any, kept: dict[str, KeptValue]) -> None:
        call = Call(visit.name, visit.module, visit.call, len(self.calls), kept)
        if self.keeps_grad:
            if torch.is_inference_mode_enabled():
                raise UserError(
                    "There are no gradients under torch.inference_mode; leave it, or trace without grad=True."
                )
            call.edge, call.views = edges_of(output, visit.name), views_of(output)
        self.calls.append(call)
        if self.stop is not None and {call.name for call in self.calls} >= self.awaited:
            self.stopping = True
            raise self.stop
