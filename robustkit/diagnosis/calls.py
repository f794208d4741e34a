"""Which layers a forward pass calls, in which order and inside which: found by watching one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook.hookable import check_hookable, why_silent
from robustkit.nethook.hooked import Inputs, Visit, hooked
from robustkit.nethook.names import unwrap
from robustkit.nethook.structure import tensors


class Site(NamedTuple):
    """One call of one layer."""

    layer: str  # dotted name; "" is the network itself
    call: int  # of this layer, from 0


@dataclass(frozen=True)
class CallRun:
    """What one forward pass did at a site."""

    site: Site
    parent: Site | None
    leaf: bool  # no other layer was called inside
    kind: str  # the layer's class
    shape: tuple[int, ...]  # of its output for one image; empty if it has no float tensor
    chain: bool  # a plain Sequential, which has no code of its own
    keeps_shape: bool  # one float tensor in, one of the same shape out


class Unseen(NamedTuple):
    """A layer that could not be looked at."""

    layer: str
    reason: str


class Map(NamedTuple):
    """All calls of a forward pass, and the layers that stayed in the dark."""

    runs: tuple[CallRun, ...]  # in the order in which they end: a layer before the one around it
    last: Site  # the innermost call whose output is the logits
    unseen: tuple[Unseen, ...]


class _Watcher:
    """Notes who is called inside whom."""

    def __init__(self) -> None:
        self.runs: list[CallRun] = []
        self.outputs: list[Any] = []
        self._open: list[Site] = []
        self._busy: set[Site] = set()

    def before(self, visit: Visit, inputs: Inputs) -> None:
        self._busy.update(self._open[-1:])
        self._open.append(Site(visit.name, visit.call))

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> None:
        site = Site(visit.name, visit.call)
        # Calls that broke off with an error the model caught are still on the pile.
        while self._open.pop() != site:
            pass
        given, made = floats(inputs), floats(output)
        self.outputs.append(output)
        self.runs.append(
            CallRun(
                site=site,
                parent=self._open[-1] if self._open else None,
                leaf=site not in self._busy,
                kind=type(visit.module).__name__,
                shape=tuple(made[0].shape[1:]) if made else (),
                chain=type(visit.module).forward is nn.Sequential.forward,
                keeps_shape=len(given) == 1 and isinstance(output, Tensor) and given[0].shape == output.shape,
            )
        )


def mapped_out(network: nn.Module, ask: Callable[[], Tensor]) -> Map:
    """Every call of layers of `network` that `ask()` makes for its logits."""
    network = unwrap(network)
    dark = _unhookable(network)
    watcher = _Watcher()
    seen = [name for name, module in network.named_modules() if not _inside(name, dark) and _runs(module)]
    with hooked(network, seen, watcher, strict=False, edits=False):
        logits = ask()
    fired = {run.site.layer for run in watcher.runs}
    silent = [Unseen(name, why_silent(network, name)) for name in seen if name not in fired]
    last = [run.site for run, output in zip(watcher.runs, watcher.outputs, strict=True) if _same(output, logits)]
    return Map(tuple(watcher.runs), last[0] if last else Site("", 0), (*dark, *silent))


def floats(value: Any) -> list[Tensor]:
    """The float tensors inside whatever a layer takes or returns."""
    return [tensor for tensor in tensors(value) if tensor.is_floating_point()]


def _same(output: Any, logits: Tensor) -> bool:
    parts = floats(output)
    return bool(parts) and parts[0].data_ptr() == logits.data_ptr() and parts[0].shape == logits.shape


def _runs(module: nn.Module) -> bool:
    return type(module).forward is not nn.Module.forward


def _unhookable(network: nn.Module) -> tuple[Unseen, ...]:
    """Scripted and compiled layers, outermost first; those inside them are not listed."""
    return tuple(_dark_ones(network)) if _refused(network, dict(network.named_modules())) else ()


def _dark_ones(network: nn.Module) -> Iterator[Unseen]:
    found: list[Unseen] = []
    for name, module in network.named_modules():
        reason = None if _inside(name, found) else _refused(network, {name: module})
        if reason is not None:
            found.append(Unseen(name, reason))
            yield found[-1]


def _refused(network: nn.Module, layers: dict[str, nn.Module]) -> str | None:
    try:
        check_hookable(network, layers)
    except UserError as error:
        return str(error)
    return None


def _inside(name: str, outer: Any) -> bool:
    return any(name == each.layer or name.startswith(f"{each.layer}.") for each in outer if each.layer)
