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


def test_a_fresh_model_has_none():
    assert leftover_hooks(seeded(Reusing)) == []


def test_each_kind_of_hook_is_found_with_its_place_and_owner():
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


def test_hooks_on_all_modules_at_once_are_found():
    handle = nn.modules.module.register_module_forward_hook(watch)
    try:
        assert leftover_hooks(nn.Linear(1, 1)) == [HookInfo("*", "forward", HERE + "watch")]
    finally:
        handle.remove()


def test_open_contexts_show_and_closed_ones_do_not():
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


def test_the_hooks_of_a_normalised_weight_are_named_so_that_nobody_removes_them():
    net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)))
    assert leftover_hooks(net) == []
