from functools import partial

import torch
from torch import nn

from robustkit.nethook import HookInfo, Trace, leftover_hooks, zero_grad_of
from tests.nethook.nets import Reusing, seeded


def watch(*args: object) -> None:
    """Does nothing."""


class Counter:
    def __call__(self, *args: object) -> None:
        """Does nothing."""

    def seen(self, *args: object) -> None:
        """Does nothing."""


HERE = f"{__name__}."


def test_a_new_model_has_no_hooks():
    assert leftover_hooks(seeded(Reusing)) == []
    assert leftover_hooks(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))) == []


def test_each_kind_of_hook_is_listed_with_its_layer_and_owner():
    net = seeded(Reusing)
    net.a.register_forward_pre_hook(watch)
    net.a.register_forward_hook(partial(watch, 1))
    net.b.register_full_backward_pre_hook(Counter())
    net.b.register_full_backward_hook(Counter().seen)
    net.a.weight.register_hook(watch)
    net.b.bias.register_post_accumulate_grad_hook(watch)
    net.act.forward = watch

    assert leftover_hooks(net) == [
        HookInfo("b", "backward_pre", HERE + "Counter"),
        HookInfo("b", "backward", HERE + "Counter.seen"),
        HookInfo("a", "forward_pre", HERE + "watch"),
        HookInfo("a", "forward", HERE + "watch"),
        HookInfo("act", "patched_forward", HERE + "watch"),
        HookInfo("b.bias", "grad_accumulated", HERE + "watch"),
        HookInfo("a.weight", "grad", HERE + "watch"),
    ]


def test_hooks_for_all_modules_are_listed():
    handle = nn.modules.module.register_module_forward_hook(watch)
    try:
        assert leftover_hooks(nn.Linear(1, 1)) == [HookInfo("*", "forward", HERE + "watch")]
    finally:
        handle.remove()


def test_hooks_of_open_contexts_are_listed_and_none_remain_afterwards():
    net = seeded(Reusing)

    with Trace(net, "a", strict=False):
        owners = {hook.owner.rpartition(".")[0].rpartition(".")[0] for hook in leftover_hooks(net)}
        places = [(hook.layer, hook.kind) for hook in leftover_hooks(net)]
    assert owners == {"robustkit.nethook.hooked"}
    assert places == [("", "forward_pre"), ("a", "forward_pre"), ("a", "forward")]
    with zero_grad_of(net, "a.bias"):
        assert leftover_hooks(net) == [HookInfo("a.bias", "grad", "robustkit.nethook.parameters._ZeroHook")]
        net(torch.ones(1, 6)).sum().backward()
    assert leftover_hooks(net) == []
