"""The residual branches of a network, which are found in its graph and not by the names of its layers.

A branch is residual if its result is added to that of a shorter path from the same value, or concatenated with a value
from which it was computed (DenseNet). A network that torch.fx cannot trace as a whole is traced child by child.
"""

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, fx, nn

_SUMS = ("add", "iadd", "add_")
_JOINS = ("cat", "concat", "concatenate")


class CallSite(NamedTuple):
    """One call of one layer: a module that is called twice has two call sites."""

    layer: str
    call: int


@dataclass(frozen=True)
class Branch:
    """A residual branch of a graph."""

    start: fx.Node  # the value from which branch and skip connection start
    end: fx.Node
    nodes: tuple[fx.Node, ...]  # from the start (exclusive) to the end
    skip: fx.Node | None  # the value to which the end is added; None where it is concatenated
    sum: fx.Node


@dataclass(frozen=True)
class Anatomy:
    """The graph of a network, or of a part of one."""

    root: str  # name of the part; "" for the network itself
    graph: fx.Graph
    made: dict[fx.Node, CallSite]  # the call that computed each value
    times: dict[str, int]  # number of calls of each layer
    branches: tuple[Branch, ...]

    def heads(self, branch: Branch) -> list[CallSite]:
        """The calls that read the start of a branch; none if an operation outside of any layer reads it too."""
        readers = [node for node in branch.nodes if branch.start in node.all_input_nodes]
        return [self.made[node] for node in readers] if all(node.op == "call_module" for node in readers) else []

    def outlet(self, branch: Branch) -> CallSite | None:
        """The last call that the whole gradient of a branch passes; None if it passes several in parallel."""
        node = branch.end
        while node not in self.made:
            sources = [source for source in node.all_input_nodes if source in branch.nodes and source.op != "get_attr"]
            if len(sources) != 1 or len(sources[0].users) != 1:
                return None
            node = sources[0]
        return self.made[node]

    def replay(self, network: nn.Module, branch: Branch, value: Tensor) -> Tensor:
        """The output of a branch for a value at its start; hooks of layers are not run."""
        runner = _Replay(network.get_submodule(self.root), graph=self.graph)
        runner.env[branch.start] = value
        for node in branch.nodes:
            runner.env[node] = runner.run_node(node)
        result = runner.env[branch.end]
        assert isinstance(result, Tensor)
        return result


class Calls:
    """A set of call sites, as hooks look them up."""

    def __init__(self, calls: dict[str, set[int] | None]) -> None:
        self._calls = calls  # by layer; None for every call

    @classmethod
    def all(cls, layers: Iterable[str]) -> "Calls":
        """Every call of the given layers."""
        return cls(dict.fromkeys(layers))

    @classmethod
    def of(cls, places: Iterable[tuple[Anatomy, CallSite]]) -> "Calls":
        """The given call sites of the given graphs."""
        calls: dict[str, set[int] | None] = {}
        times = {}
        for part, place in places:
            times[place.layer] = part.times[place.layer]
            known = calls.setdefault(place.layer, set())
            assert known is not None
            known.add(place.call)
        # If all calls in the graph are chosen, calls that the graph lacks are chosen too.
        return cls({layer: None if len(known or ()) == times[layer] else known for layer, known in calls.items()})

    @property
    def layers(self) -> list[str]:
        """The names of the layers."""
        return list(self._calls)

    def __contains__(self, place: CallSite) -> bool:
        calls = self._calls.get(place.layer, set())
        return calls is None or place.call in calls


_GRAPHS: "WeakKeyDictionary[nn.Module, tuple[list[tuple[str, type]], list[Anatomy]]]" = WeakKeyDictionary()


def anatomies(network: nn.Module) -> list[Anatomy]:
    """The graph of `network`, or the graphs of its largest parts that can be traced."""
    layers = [(name, type(module)) for name, module in network.named_modules()]
    if network not in _GRAPHS or _GRAPHS[network][0] != layers:
        _GRAPHS[network] = layers, list(_anatomies(network, ""))
    return _GRAPHS[network][1]


def _anatomies(part: nn.Module, root: str) -> Iterator[Anatomy]:
    tracer = _Tracer(root)
    try:
        graph = tracer.trace(_copied(part, {}))
    except Exception:
        # torch.fx fails in many ways where the forward depends on the data.
        for name, child in part.named_children():
            if any(True for _ in child.children()):
                yield from _anatomies(child, f"{root}.{name}" if root else name)
        return
    yield Anatomy(root, graph, tracer.made, tracer.times, tuple(_branches(graph)))


def _copied(module: nn.Module, known: dict[nn.Module, nn.Module]) -> nn.Module:
    """Copies of the modules with the same parameters, their own attributes and no hooks."""
    # A forward may store fx placeholders in attributes, and hooks must not run on placeholders.
    if module not in known:
        known[module] = twin = copy.copy(module)
        children = {name: child and _copied(child, known) for name, child in module._modules.items()}
        hooks = {name: OrderedDict() for name in ("_forward_hooks", "_forward_pre_hooks")}  # type: ignore[var-annotated]
        vars(twin).update(_modules=children, **hooks)
    return known[module]


class _Tracer(fx.Tracer):
    """Records which call of which layer computed each value; hooks of layers are not run."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.prefix = f"{root}." if root else ""
        self.made: dict[fx.Node, CallSite] = {}
        self.times: dict[str, int] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return super().is_leaf_module(m, module_qualified_name) or not any(True for _ in m.children())

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = self.prefix + self.path_of_module(m)
        call = self.times.get(name, 0)
        self.times[name] = call + 1
        value = super().call_module(m, m.forward, args, kwargs)
        if isinstance(value, fx.Proxy):
            self.made.setdefault(value.node, CallSite(name, call))
        return value


class _Replay(fx.Interpreter):
    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target).forward(*args, **kwargs)


def _branches(graph: fx.Graph) -> Iterator[Branch]:
    order = {node: number for number, node in enumerate(graph.nodes)}
    # Bit n of a node's origin: node n is the node itself, or one from which it was computed.
    origin: dict[fx.Node, int] = {}
    for node, number in order.items():
        origin[node] = 1 << number
        for source in node.all_input_nodes:
            origin[node] |= origin[source]

    def between(start: fx.Node, end: fx.Node) -> tuple[fx.Node, ...]:
        inside = origin[end] & ~origin[start]
        return tuple(node for node, number in order.items() if inside >> number & 1)

    for node in order:
        values = node.all_input_nodes
        if _is(node, _SUMS) and len(values) == 2 and origin[values[0]] & origin[values[1]]:
            start = list(order)[(origin[values[0]] & origin[values[1]]).bit_length() - 1]
            skip, end = sorted(values, key=lambda value: _layers(between(start, value)))
            if _layers(between(start, skip)) < _layers(between(start, end)):
                yield Branch(start, end, between(start, end), skip, node)
        elif _is(node, _JOINS):
            for end in values:
                sources = [other for other in values if other is not end and origin[end] >> order[other] & 1]
                start = max(sources, key=order.__getitem__, default=end)
                if _layers(between(start, end)):
                    yield Branch(start, end, between(start, end), None, node)


def _is(node: fx.Node, operations: tuple[str, ...]) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_function", "call_method") and name in operations


def _layers(nodes: tuple[fx.Node, ...]) -> int:
    return sum(node.op == "call_module" for node in nodes)
