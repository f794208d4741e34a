"""After every context, and after every kind of error, the model has its former hooks, weights, modes and logits."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
import torchvision
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook import (
    Trace,
    bpda,
    clamp_grad,
    edit_grad,
    edit_output,
    expose_attention,
    replaced,
    restored,
    scale_grad,
    zero_grad_of,
)
from tests.nethook.nets import Attention, Net, hook_count, seeded


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.where == "backward":
            raise ZeroDivisionError
        return grad, None


def may_fail(net: nn.Module, x: Tensor) -> Tensor:
    if net.where == "forward":
        raise ZeroDivisionError
    return Failing.apply(x, net.where)


def mixed() -> nn.Module:
    """A network with many kinds of layers, one of which fails in forward or in backward if its `where` says so."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = net.relu(net.first(x))
        x = x + net.attn(x) + net.mha(x, x, x)[0]
        return net.last(net.trap(x))

    net = Net(
        run, first=nn.Linear(6, 6), relu=nn.ReLU(inplace=True), attn=Attention(),
        mha=nn.MultiheadAttention(6, 2, batch_first=True), trap=Net(may_fail), last=nn.Linear(6, 3),
    )  # fmt: skip
    net.trap.where = ""
    net.register_forward_hook(lambda *_: None)
    return net


def same(value, *, name, call):
    return value


CONTEXTS: dict[str, Callable[[nn.Module], AbstractContextManager[object]]] = {
    "trace": Trace,
    "trace everything": lambda net: Trace(net, ["", "first", nn.ReLU], input=True, grad=True, edit=same),
    "trace and reduce": lambda net: Trace(net, "first", reduce=lambda part, *, name, call: part.norm(), device="cpu"),
    "edit_grad": lambda net: edit_grad(net, ["first", "relu"], same),
    "edit_grad input": lambda net: edit_grad(net, ["relu", "last", ""], same, at="input"),
    "scale_grad": lambda net: scale_grad(net, "trap", 0.5),
    "clamp_grad": lambda net: clamp_grad(net, "first", min=-1.0),
    "edit_output": lambda net: edit_output(net, "first", same),
    "bpda": lambda net: bpda(net, ["relu", "trap"]),
    "zero_grad_of": lambda net: zero_grad_of(net, "*.bias"),
    "restored": restored,
    "replaced": lambda net: replaced(net, {"relu": nn.ReLU()}),
    "expose_attention": expose_attention,
}
every_context = pytest.mark.parametrize("name", CONTEXTS)


def inputs() -> Tensor:
    return torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(3)).requires_grad_()


def step(net: nn.Module) -> Tensor:
    out = net(inputs())
    out.sum().backward()
    return out


@every_context
@pytest.mark.parametrize("where", ["", "forward", "backward", "body", "edit"])
def test_hooks_are_removed_however_a_context_ends(name, where):
    net = seeded(mixed).eval()
    before, modules, frozen = hook_count(net), list(net.modules()), copy.deepcopy(net.state_dict())
    net.trap.where = where

    def leave() -> None:
        with CONTEXTS[name](net):
            if where == "body":
                raise ZeroDivisionError
            if where == "edit":
                with edit_output(net, "trap", lambda output, *, name, call: output.missing):
                    step(net)
            step(net)

    if where:
        with pytest.raises((ZeroDivisionError, AttributeError)):
            leave()
    else:
        leave()

    assert hook_count(net) == before
    assert all(now is then for now, then in zip(net.modules(), modules, strict=True))
    assert all(torch.equal(value, frozen[key]) for key, value in net.state_dict().items())
    assert net.attn.fused_attn is True


@pytest.mark.parametrize("name", [name for name in CONTEXTS if name != "expose_attention"])
def test_logits_are_the_same_bits_with_and_without(name):
    net = seeded(mixed).eval()
    plain = net(inputs())

    with CONTEXTS[name](net):
        out = step(net)

    assert torch.equal(out, plain)


@every_context
def test_modes_random_state_and_flags_are_unchanged(name):
    net = seeded(mixed)
    net.attn.eval()
    net.last.weight.requires_grad_(False)
    modes, flags = [m.training for m in net.modules()], [p.requires_grad for p in net.parameters()]
    state = torch.get_rng_state()

    with CONTEXTS[name](net):
        step(net)

    assert [m.training for m in net.modules()] == modes
    assert [p.requires_grad for p in net.parameters()] == flags
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("fails", ["edit", "edit_grad", "edit_output", "reduce", "replacement"])
def test_an_error_in_a_callback_is_raised_and_leaves_no_hook(fails):
    def broken(*_: object, **__: object) -> Tensor:
        raise ZeroDivisionError

    net = seeded(mixed).eval()
    before = hook_count(net)
    context = {
        "edit": lambda: Trace(net, "first", edit=broken),
        "edit_grad": lambda: edit_grad(net, "first", broken),
        "edit_output": lambda: edit_output(net, "first", broken),
        "reduce": lambda: Trace(net, "first", reduce=broken),
        "replacement": lambda: bpda(net, "first", broken),
    }[fails]

    with pytest.raises(ZeroDivisionError), context():
        step(net)

    assert hook_count(net) == before


@pytest.mark.parametrize("first", [0, 1])
def test_two_contexts_may_be_closed_in_either_order(first):
    net, x = seeded(mixed).eval(), inputs()
    before = hook_count(net)
    traces = [Trace(net, "first"), Trace(net, ["first", "last"])]

    for trace in traces:
        trace.__enter__()
    net(x)
    traces[first].__exit__(None, None, None)
    net(x)
    traces[1 - first].__exit__(None, None, None)
    net(x)

    assert [len(traces[first]["first"].calls), len(traces[1 - first]["first"].calls)] == [1, 2]
    assert hook_count(net) == before


def test_an_error_during_installation_leaves_no_hook(monkeypatch):
    net = seeded(mixed)
    before = hook_count(net)

    def refuse(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(net.last, "register_forward_hook", refuse)
    with pytest.raises(ZeroDivisionError), Trace(net, ["first", "last"]):
        pass

    assert hook_count(net) == before


def test_batch_statistics_are_counted_once():
    net = seeded(lambda: torchvision.models.resnet18(num_classes=3)).train()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3)).requires_grad_()

    with Trace(net, grad=True) as trace, scale_grad(net, "layer1", 0.5), bpda(net, "relu"):
        trace.grad(net(x).sum())

    assert net.bn1.num_batches_tracked == 1


def test_an_error_in_the_body_is_the_one_that_is_raised():
    net = seeded(mixed)

    with pytest.raises(UserError, match="mine"), Trace(net, "first"), scale_grad(net, "last", 0.5), bpda(net, "relu"):
        raise UserError("mine")
