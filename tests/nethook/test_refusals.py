"""Where hooks would not be called, or see no graph, there is an error instead."""

import copy
import io
import warnings

import pytest
import torch
from robustkit.attacks import PGD
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError, checkpoint

import robustkit
from robustkit.errors import UserError
from robustkit.nethook import (
    CompiledModelError,
    ReentrantCheckpointError,
    ScriptedModuleError,
    Trace,
    UnfiredLayerError,
    bpda,
    edit_output,
    scale_grad,
    unwrap,
)
from tests.nethook.nets import Net, Reusing, checkpointed, hook_count, seeded, vectors


def test_a_compiled_model_is_an_error_and_the_model_inside_is_not():
    net, x = seeded(Reusing), vectors()
    compiled = torch.compile(net, backend="eager")

    with pytest.raises(CompiledModelError, match="unwrap"), Trace(compiled, "a"):
        pass
    with Trace(unwrap(compiled), "a") as trace:
        unwrap(compiled)(x)
    assert torch.equal(trace["a"].output, net.a(x))


@pytest.mark.parametrize("how", ["module.compile()", "module.forward", "part"])
def test_compiled_parts_are_an_error_and_the_rest_is_not(how):
    net = nn.Sequential(seeded(Reusing), nn.Tanh())
    if how == "module.compile()":
        net[0].compile(backend="eager")
    elif how == "module.forward":
        net[0].forward = torch.compile(net[0].forward, backend="eager")
    else:
        net[0] = torch.compile(net[0], backend="eager")

    # What `unwrap` returns is compiled, too.
    with pytest.raises(CompiledModelError, match="take the model from before"), scale_grad(net, nn.Linear, 0.5):
        pass
    assert hook_count(net) == 0
    with Trace(net, "1", strict=False):
        pass


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_told_to_run_as_before_its_compilation_has_hooks(whole):
    net = nn.Sequential(seeded(Reusing), nn.Tanh())
    compiled = torch.compile(net, backend="eager")
    if not whole:
        net[0].compile(backend="eager")
    model = compiled if whole else net

    with torch.compiler.set_stance("force_eager"), Trace(model, "0.a") as trace:
        model(vectors())

    assert torch.equal(trace["0.a"].output, net[0].a(vectors()))


def test_running_the_compiled_model_while_the_original_is_traced_is_an_error():
    net = seeded(Reusing)
    compiled = torch.compile(net, backend="eager")
    compiled(vectors())

    with pytest.raises(UnfiredLayerError, match="'a'"), Trace(net, "a"):
        compiled(vectors())


@pytest.fixture
def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of TorchScript
        part = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.ReLU()))
    return nn.Sequential(part, nn.Tanh())


def test_a_model_that_is_scripted_as_a_whole_is_an_error_of_one_line(scripted):
    """`diagnose` ended in an AttributeError."""
    x = vectors().sigmoid()
    y = scripted[0](x).argmax(1)

    for call in (lambda: robustkit.diagnose(scripted[0], x, y, eps=0.1), lambda: Trace(scripted[0], "").__enter__()):
        with pytest.raises(ScriptedModuleError, match="The model is scripted and calls no Python hooks; use the model"):
            call()


def test_a_scripted_layer_is_an_error_and_layers_around_it_are_not(scripted):
    with pytest.raises(ScriptedModuleError, match="'0"), Trace(scripted, ["1", "0.1"]):
        pass
    assert hook_count(scripted) == 0
    with Trace(scripted, "1") as trace:
        out = scripted(vectors())
    assert torch.equal(trace["1"].output, out)


@pytest.mark.parametrize(
    "context",
    [
        lambda net: Trace(net, "first", grad=True),
        lambda net: scale_grad(net, "first", 0.5),
        lambda net: bpda(net, "act"),
    ],
)
def test_gradients_under_a_reentrant_checkpoint_are_an_error(context):
    net = seeded(lambda: checkpointed(reentrant=True))

    with pytest.raises(ReentrantCheckpointError, match="use_reentrant=False"), context(net):
        net(vectors().requires_grad_())
    assert hook_count(net) == 0


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("use", ["attack", "diagnose", "trace"])
def test_an_input_gradient_through_a_reentrant_checkpoint_is_an_error_that_names_the_fix(use):
    # Around a function, not around layers: no hook meets it.
    net = seeded(lambda: Net(lambda net, x: net.fc(checkpoint(torch.sin, x, use_reentrant=True)), fc=nn.Linear(6, 3)))
    x = vectors().sigmoid()
    with torch.no_grad():
        y = net(x).argmax(1)
    uses = {
        "attack": lambda: robustkit.attack(net, x, y, PGD(0.1, steps=2)),
        "diagnose": lambda: robustkit.diagnose(net, x, y, eps=0.1),
        "trace": lambda: robustkit.trace(net, x, y, attack="fgsm", eps=0.1),
    }

    with pytest.raises(ReentrantCheckpointError, match="use_reentrant=False"):
        uses[use]()


def test_values_under_a_reentrant_checkpoint_are_recorded():
    net, x = seeded(lambda: checkpointed(reentrant=True)), vectors().requires_grad_()

    with Trace(net, "first") as trace:
        net(x).sum().backward()

    assert len(trace.calls) == 1
    assert torch.equal(trace["first"].output, net.first(x))


def test_a_layer_that_runs_without_gradients_is_no_checkpoint():
    def run(net: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = net.a(x)
        return net.b(x)

    with Trace(Net(run, a=nn.Linear(6, 6), b=nn.Linear(6, 6)), "a", grad=True) as trace:
        grads = trace.grad(trace.model(vectors()).sum())

    assert grads["a"] is None


def test_a_layer_that_a_checkpoint_repeats_is_recorded_once():
    net, x = seeded(lambda: checkpointed(reentrant=False)), vectors()
    hidden = net.first(x)
    (wanted,) = torch.autograd.grad(net.last(net.act(hidden)).sum(), hidden)

    with Trace(net, "first", grad=True) as trace:
        grads = trace.grad(net(x.requires_grad_()).sum())

    assert len(trace.calls) == 1
    assert torch.equal(grads["first"], wanted)


def test_an_edit_is_repeated_when_a_checkpoint_repeats_the_layer():
    def twice(output, *, name, call):
        calls.append(call)
        return output * 2

    net, x, calls = seeded(lambda: checkpointed(reentrant=False)), vectors().requires_grad_(), []
    wanted = torch.autograd.grad(net.last(net.act(net.first(x) * 2)).sum(), x)[0]

    with edit_output(net, "first", twice):
        (grad,) = torch.autograd.grad(net(x).sum(), x)

    assert calls == [0, 0]
    assert torch.equal(grad, wanted)


OUTPUT_EDITS = {
    "edit_output": lambda net, layer: edit_output(net, layer, lambda output, *, name, call: output * 2),
    "Trace": lambda net, layer: Trace(net, layer, edit=lambda output, *, name, call: output * 2),
}


@pytest.mark.parametrize("edit", OUTPUT_EDITS.values(), ids=OUTPUT_EDITS)
def test_repeating_an_edited_layer_after_the_edit_is_an_error(edit):
    """The layer was repeated without the edit, and the gradient was wrong without an error."""
    net, x = seeded(lambda: checkpointed(reentrant=False)), vectors().requires_grad_()

    with edit(net, "first"):
        out = net(x)

    with pytest.raises(CheckpointError):
        out.sum().backward()


@pytest.mark.parametrize("layers", ["act", ["first", "act"], "last"])
def test_edits_of_any_layer_may_be_repeated_by_a_checkpoint(layers):
    plain, net = (seeded(lambda reentrant=reentrant: checkpointed(reentrant)) for reentrant in (True, False))
    grads = []
    for each in (plain, net):
        x = vectors().requires_grad_()
        with OUTPUT_EDITS["edit_output"](each, layers), OUTPUT_EDITS["Trace"](each, layers):
            each(x).sum().backward()
        grads.append(x.grad)

    assert torch.equal(*grads)


def test_a_gradient_edit_under_a_checkpoint_is_applied_once():
    net, x = seeded(lambda: checkpointed(reentrant=False)), vectors().requires_grad_()
    (whole,) = torch.autograd.grad(net(x).sum(), x)

    with scale_grad(net, "act", 0.5):
        (grad,) = torch.autograd.grad(net(x).sum(), x)

    assert torch.equal(grad, whole / 2)


def test_an_edit_of_a_repeated_layer_that_runs_twice_is_an_error():
    inner = seeded(lambda: checkpointed(reentrant=False))
    net = Net(lambda net, x: net.inner(net.inner.first(x)), inner=inner)

    with pytest.raises(UserError, match="2 times"), scale_grad(net, "inner.first", 0.5):
        net(vectors().requires_grad_()).sum().backward()


def test_copying_or_saving_a_model_with_open_hooks_is_an_error():
    net = seeded(Reusing)

    with Trace(net, "a", strict=False):
        with pytest.raises(UserError, match="copied"):
            copy.deepcopy(net)
        with pytest.raises(UserError, match="saved"):
            torch.save(net, io.BytesIO())
        copy.deepcopy(net.state_dict())
    copy.deepcopy(net)


def test_a_replica_on_another_device_is_an_error():
    net = seeded(Reusing)

    # A replica shares the hooks of the module it was made of.
    with pytest.raises(UserError, match="replica"), Trace(net, "a"):
        net.a._replicate_for_data_parallel()(vectors())


def test_a_model_inside_a_wrapper_is_traced_by_its_own_names():
    net, x = seeded(Reusing), vectors()

    with Trace(nn.DataParallel(net), "a") as trace:
        trace.model(x)

    assert torch.equal(trace["a"].output, net.a(x))
