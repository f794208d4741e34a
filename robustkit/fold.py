"""A copy of a network with each BatchNorm folded into the convolution before it: less time, half the memory.

The copy is for searching only; verdicts come from the original.
"""

import copy

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

_PAIRS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
}


def folded(model: nn.Module) -> nn.Module | None:
    """A folded copy of `model` in eval mode, weights frozen; None where it cannot be traced or has nothing to fold."""
    if not any(isinstance(module, tuple(_PAIRS.values())) for module in model.modules()) or _hooked(model):
        return None
    try:
        graph = fx.symbolic_trace(copy.deepcopy(model).eval())
    except Exception:
        # fx refuses whatever depends on the data in its own many ways; such a model is simply searched unfolded.
        return None
    count = 0
    for node in list(graph.graph.nodes):
        conv = _conv_before(graph, node)
        if conv is not None:
            _replace(graph, conv, node)
            count += 1
    if not count:
        return None
    graph.delete_all_unused_submodules()
    graph.recompile()
    return graph.eval().requires_grad_(False)


def _hooked(model: nn.Module) -> bool:
    # A hook on a container would be lost in the trace, and it may change what the model computes.
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def _conv_before(graph: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The convolution whose output goes to the BatchNorm `node` and nowhere else, used once itself."""
    if node.op != "call_module" or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    conv = node.args[0]
    if conv.op != "call_module" or len(conv.users) > 1:
        return None
    first, second = graph.get_submodule(str(conv.target)), graph.get_submodule(str(node.target))
    uses = [str(other.target) for other in graph.graph.nodes if other.op == "call_module"]
    once = uses.count(str(conv.target)) == 1 and uses.count(str(node.target)) == 1
    pair = _PAIRS.get(type(first))
    return conv if once and pair is not None and type(second) is pair and second.running_mean is not None else None


def _replace(graph: fx.GraphModule, conv: fx.Node, norm: fx.Node) -> None:
    first, second = graph.get_submodule(str(conv.target)), graph.get_submodule(str(norm.target))
    parent, _, name = str(conv.target).rpartition(".")
    with torch.no_grad():
        setattr(graph.get_submodule(parent), name, fuse_conv_bn_eval(first, second))  # type: ignore[type-var,arg-type]
    norm.replace_all_uses_with(conv)
    graph.graph.erase_node(norm)
