"""Known bugs of hook tools, one test each.

Number 3 is tested in test_replace.py, 5, 6, 7 and 9 in test_trace.py, 17 in tests/test_untouched.py.
"""

import copy
import inspect
import pathlib
import re
import sys
import warnings
from contextlib import ExitStack

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import robustkit.nethook
from robustkit.errors import UserError
from robustkit.nethook import (
    LayerNotFoundError,
    Trace,
    UnfiredLayerError,
    clamp_grad,
    edit_output,
    get_module,
    get_parameter,
    scale_grad,
    select,
)
from tests.nethook.nets import Net, Reusing, hook_count, seeded, tied, vectors


def test_01_stopping_at_a_layer_that_is_not_reached_raised_a_type_error_about_something_else():
    with pytest.raises(UnfiredLayerError, match="'a'"), Trace(seeded(Reusing), "a", stop=True):
        pass


def test_02_one_wrong_name_left_the_hooks_of_the_right_ones_for_ever():
    net = seeded(Reusing)

    for context in (Trace, lambda net, layers: scale_grad(net, layers, 0.5)):
        with pytest.raises(LayerNotFoundError), context(net, ["a", "b", "c"]):
            pass

    assert hook_count(net) == 0


def test_04_the_second_name_of_a_tied_module_was_not_found():
    net = seeded(tied)

    assert get_module(net, "decoder") is net.encoder
    assert get_parameter(net, "decoder.weight") is net.encoder.weight


def test_08_guessing_the_signature_passed_the_layers_name_to_relu_as_inplace():
    net, arguments = seeded(Reusing), {}

    with pytest.raises(TypeError, match="name"), edit_output(net, "a", F.relu):
        net(vectors())

    class Own:
        def __call__(self, output, **how):
            arguments.update(how)
            return output

        def method(self, output, *, name, call):
            return self(output, name=name, call=call)

    for edit in (Own(), Own().method):
        with edit_output(net, "a", edit):
            net(vectors())
        assert arguments == {"name": "a", "call": 0}


def test_10_two_contexts_closed_in_the_order_they_were_opened_left_a_patched_forward():
    net, x = seeded(Reusing), vectors()
    plain = net(x)
    first, second = (Trace(net, "a", edit=lambda output, *, name, call: output * 2) for _ in range(2))

    first.__enter__()
    second.__enter__()
    net(x)
    first.__exit__(None, None, None)
    assert torch.equal(net(x), net.act(net.b(net.act(2 * F.linear(x, net.a.weight, net.a.bias)))))
    second.__exit__(None, None, None)

    assert torch.equal(net(x), plain)
    assert "forward" not in vars(net.a)
    assert torch.equal(copy.deepcopy(net)(x), plain)


def test_11_hooks_of_others_were_removed_and_with_them_spectral_norm():
    net, calls = nn.Sequential(spectral(nn.Linear(6, 6)), nn.ReLU()), []
    net[0].register_forward_hook(lambda module, args, kwargs, output: calls.append(1), with_kwargs=True)
    before = hook_count(net)

    with Trace(net, grad=True) as trace, scale_grad(net, "0", 0.5), clamp_grad(net, "1", min=0):
        trace.grad(net(vectors()).sum())
    calls.clear()
    with torch.no_grad():
        net[0].weight_orig.mul_(3)
    net(vectors())

    assert hook_count(net) == before
    assert calls == [1]
    assert torch.linalg.matrix_norm(net[0].weight, 2) < 1.5


def spectral(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older form, which is a pre-hook, is on its way out
        return torch.nn.utils.spectral_norm(layer, n_power_iterations=20)


def test_12_each_reading_of_a_layer_added_a_hook_and_one_tool_returned_the_input_as_the_output():
    net, x = seeded(Reusing), vectors()

    for _ in range(3):
        with Trace(net, net.a) as trace:
            net(x)

    assert hook_count(net) == 0
    assert len(trace["a"].calls) == 1
    assert torch.equal(trace["a"].output, net.a(x))


def test_13_counting_passes_with_a_backward_hook_broke_models_that_write_into_their_input():
    def run(net: nn.Module, x: Tensor) -> Tensor:
        x -= 0.5
        return net.inner(x)

    net = Net(run, inner=seeded(Reusing))
    x = vectors().requires_grad_()

    with Trace(net, ["", "*"], input=True, grad=True) as trace, scale_grad(net, "", 0.5, at="input"):
        out = net(x * 1)
        grads = trace.grad(out.sum())

    assert torch.equal(grads[""], torch.ones(4, 6))


def test_14_guided_backpropagation_did_not_restore_the_original_relus():
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6), nn.ReLU())
    before = list(net)

    for fail in (False, True):
        with ExitStack() as stack:
            if fail:
                stack.enter_context(pytest.raises(ZeroDivisionError))
            stack.enter_context(clamp_grad(net, nn.ReLU, min=0, at="output"))
            net(vectors()).sum().backward()
            _ = 1 / (not fail)

    assert all(now is then for now, then in zip(net, before, strict=True))
    assert [net[1].inplace, net[3].inplace] == [True, False]


def test_15_the_result_of_one_model_was_reported_for_the_next_and_the_debuggers_trace_was_removed():
    def tracer(*_: object) -> None:
        return None

    first, second, before = seeded(Reusing), seeded(Reusing), sys.gettrace()
    sys.settrace(tracer)
    try:
        with Trace(first):
            first(vectors())
        with Trace(second, strict=False) as trace:
            pass
        after = sys.gettrace()
    finally:
        sys.settrace(before)

    assert after is tracer
    assert trace.calls == []


def test_16_an_error_in_forward_was_followed_by_another_one_inside_the_hook():
    def run(net: nn.Module, x: Tensor) -> Tensor:
        raise KeyError(net.a(x).shape)

    net = Net(run, a=nn.Linear(6, 6))

    with pytest.raises(KeyError, match="4, 6"), Trace(net, ["", "a"], grad=True), scale_grad(net, "", 0.5):
        net(vectors())


def test_module_backward_hooks_are_not_used():
    folder = pathlib.Path(inspect.getfile(robustkit.nethook)).parent

    for path in folder.glob("*.py"):
        assert not re.search(r"register_(full_)?backward(_pre)?_hook\(", path.read_text("utf-8")), path.name


def test_every_error_is_a_user_error():
    for name, error in vars(robustkit.nethook).items():
        if name.endswith("Error"):
            assert issubclass(error, UserError)
    with pytest.raises(LookupError):
        select(nn.Linear(1, 1), "x")
