"""What a `Trace` does at each run of a layer: record values and gradient edges, edit, and stop the forward pass."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import torch

from robustkit.nethook.call import Call, Snapshot, SnapshotPolicy, edges_of, views_of
from robustkit.nethook.edits import OutputEdit, checked, mark_for_checkpoints
from robustkit.nethook.hooked import Inputs, Visit


class Stop(BaseException):
    """Stops a forward pass; not an Exception, so that `except Exception` inside a model does not catch it."""


@dataclass
class Recorder:
    """A probe that records each run; `Trace` explains the options."""

    policy: SnapshotPolicy
    record_output: bool
    record_input: bool
    record_grad: bool
    edit: OutputEdit | None
    stop: Stop | None
    awaited: Set[str] = frozenset()  # layers that must have run before the forward pass stops
    calls: list[Call] = field(default_factory=list)
    stopping: bool = False

    def before(self, visit: Visit, inputs: Inputs) -> None:
        if self.record_input and not visit.replay:
            visit.memo = self.policy(inputs, visit.name, visit.call)

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Any:
        snapshots: dict[str, Snapshot] = {} if visit.memo is None else {"input": visit.memo}
        records = self.record_output and not visit.replay
        edited = None
        if self.edit is not None:
            if records:
                snapshots["raw"] = self.policy(output, visit.name, visit.call)
            edited = self.edit(output, name=visit.name, call=visit.call)
            output = output if edited is None else checked(output, edited, visit.name)
            mark_for_checkpoints()
        if records:
            snapshots["output"] = self.policy(output, visit.name, visit.call)
        if not visit.replay:
            self._record(visit, output, snapshots)
        return edited

    def _record(self, visit: Visit, output: Any, snapshots: dict[str, Snapshot]) -> None:
        call = Call(visit.name, visit.module, visit.call, len(self.calls), snapshots)
        # Where the model's own code is in inference mode, as under no_grad, there is no graph.
        if self.record_grad and not torch.is_inference_mode_enabled():
            call.edge, call.views = edges_of(output, visit.name), views_of(output)
        self.calls.append(call)
        if self.stop is not None and {call.name for call in self.calls} >= self.awaited:
            self.stopping = True
            raise self.stop
