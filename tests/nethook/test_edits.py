import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.errors import UserError
from robustkit.nethook import (
    ShapeMismatchError,
    Trace,
    UnfiredLayerError,
    clamp_grad,
    edit_grad,
    edit_output,
    scale_grad,
)
from tests.nethook.nets import (
    Answer,
    Founding,
    Net,
    Reusing,
    grad_in,
    images,
    keyworded,
    overwriting_and_copying,
    residual,
    seeded,
    vectors,
    wrapping,
)


@pytest.mark.parametrize(("gamma", "at", "rest"), [(0.0, "output", 0.5), (0.5, "input", 0.75)])
def test_a_scaled_branch_does_not_change_the_skip_connection(gamma, at, rest):
    net, x = seeded(residual), vectors()
    whole = grad_in(net, x)

    # Dropout returns its own input in eval mode: a hook on that tensor would change the skip connection, too.
    with scale_grad(net, "drop", gamma, at=at):
        assert torch.allclose(grad_in(net, x), whole * rest)


@pytest.mark.parametrize("at", ["input", "output"])
def test_layers_that_write_in_place_get_the_gradients_of_layers_that_copy(at):
    grads = []
    for net in overwriting_and_copying():
        with edit_grad(net, ["conv", "relu"], lambda grad, *, name, call: grad.clamp(min=0) * 3, at=at):
            grads.append(grad_in(net, images()))

    assert torch.equal(*grads)


@pytest.mark.parametrize("at", ["input", "output"])
def test_a_model_that_continues_with_the_overwritten_input_computes_the_same(at):
    def run(net: nn.Module, x: Tensor) -> Tensor:
        hidden = net.conv(x)
        net.relu(hidden)
        return hidden * 2

    net, x = seeded(lambda: Net(run, conv=nn.Conv2d(3, 4, 3), relu=nn.ReLU(inplace=True))), images()
    plain, whole = net(x), grad_in(net, x)

    with scale_grad(net, "relu", 0.5, at=at), scale_grad(net, "relu", 0.5, at=at), Trace(net, "relu") as trace:
        assert torch.equal(net(x), plain)
        assert torch.equal(grad_in(net, x), whole / 4)
    assert torch.equal(trace["relu"].output, plain / 2)


def test_an_edit_gets_the_layer_and_the_run():
    net, calls = seeded(Reusing), []

    def edit(grad, *, name, call):
        calls.append((name, call))
        return grad

    with edit_grad(net, ["act", "a"], edit):
        for _ in range(2):
            grad_in(net, vectors())

    assert calls == [("act", 1), ("act", 0), ("a", 0)] * 2


def test_one_run_of_a_reused_layer_can_be_edited():
    net, x = seeded(Reusing), vectors()
    whole = grad_in(net, x)

    with edit_grad(net, "act", lambda grad, *, name, call: grad * 3 if call == 0 else grad):
        assert torch.allclose(grad_in(net, x), whole * 3)


def test_edits_of_one_layer_compose():
    net, x = seeded(Founding), images(1)
    whole = grad_in(net, x)

    with scale_grad(net, "relu", 2.0), scale_grad(net, "relu", 4.0, at="input"), scale_grad(net, "relu", 0.5):
        assert torch.equal(grad_in(net, x), whole * 4)


@pytest.mark.parametrize("bounds", [{"min": 0.0}, {"min": -0.01, "max": 0.02}])
def test_clamping_clamps_the_gradient_with_respect_to_the_input(bounds):
    net, x = seeded(Founding), images(1)

    with clamp_grad(net, "conv", **bounds):
        clamped = grad_in(net, x)

    assert torch.equal(clamped, grad_in(net, x).clamp(**bounds))


def test_the_backward_pass_may_follow_after_the_context():
    net, x = seeded(Founding), images(1).requires_grad_()
    whole = grad_in(net, x)

    with scale_grad(net, "conv", 0.5):
        out = net(x)
    out.sum().backward()

    assert torch.equal(x.grad, whole / 2)


@pytest.mark.parametrize(
    ("build", "layer", "at"),
    [(lambda: wrapping(lambda a, b: Answer(a, (b, None))), "inner", "output"), (keyworded, "mix", "input")],
)
def test_all_tensors_of_wrapped_outputs_and_keyword_arguments_are_edited(build, layer, at):
    net, x = seeded(build), vectors()
    whole = grad_in(net, x)

    with scale_grad(net, layer, 0.5, at=at):
        assert torch.equal(grad_in(net, x), whole / 2)


def test_a_gradient_edit_changes_no_output():
    net, x = seeded(lambda: torchvision.models.resnet18(num_classes=10)).eval(), images(2, size=32).requires_grad_()
    plain = net(x)

    with scale_grad(net, "*", 0.5), clamp_grad(net, "*", min=-1.0):
        assert torch.equal(net(x), plain)


@pytest.mark.parametrize(
    "wrong", [lambda grad, **_: None, lambda grad, **_: grad[..., :1], lambda grad, **_: grad.sum()]
)
def test_an_edit_that_returns_no_gradient_of_the_same_shape_is_an_error(wrong):
    with edit_grad(net := seeded(Founding), "conv", wrong), pytest.raises(ShapeMismatchError):
        grad_in(net, images(1))


def test_an_edit_that_writes_into_its_argument_is_an_error():
    net = seeded(Founding)

    with edit_grad(net, "conv", lambda grad, *, name, call: grad.mul_(2)), pytest.raises(UserError, match="new tensor"):
        grad_in(net, images(1))


def test_a_gradient_that_cannot_reach_the_layer_is_an_error():
    def run_without_grad(net: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = net.a(x)
        return net.b(x)

    net, quiet = seeded(Founding), seeded(lambda: Net(run_without_grad, a=nn.Linear(6, 6), b=nn.Linear(6, 6)))

    with pytest.raises(UnfiredLayerError, match="requires_grad"), clamp_grad(net, "conv", min=0):
        net(images(1)).sum().backward()
    with pytest.raises(UnfiredLayerError, match="no_grad"), scale_grad(quiet, "a", 0.5):
        quiet(vectors().requires_grad_()).sum().backward()


def test_a_forward_pass_without_gradients_inside_an_edit_is_no_error():
    net, x = seeded(Founding), images(1)
    plain = net(x)

    with clamp_grad(net, "conv", min=0), torch.no_grad():
        assert torch.equal(net(x), plain)


@pytest.mark.parametrize(
    "edit",
    [
        lambda net: scale_grad(net, "act", 0.5),
        lambda net: clamp_grad(net, "act", min=0),
        lambda net: edit_output(net, "act", lambda output, *, name, call: output),
    ],
)
def test_an_edit_of_a_layer_that_never_ran_is_an_error(edit):
    net = seeded(Reusing)

    with pytest.raises(UnfiredLayerError, match="'act'"), edit(net):
        net.a(vectors())


def test_invalid_options_are_an_error():
    net = seeded(Founding)

    with pytest.raises(UserError, match="at must be"), scale_grad(net, "conv", 1.0, at="weight"):
        pass
    with pytest.raises(UserError, match="min, max"):
        clamp_grad(net, "conv")


def test_the_model_and_traces_inside_get_the_edited_output():
    net, x = seeded(Founding), images(1)
    whole = grad_in(net, x)

    with edit_output(net, "relu", lambda output, *, name, call: output * 0), Trace(net, "relu") as trace:
        assert torch.equal(net(x), net.fc1.bias)
    with edit_output(net, "fc1", lambda output, *, name, call: output * 3):
        assert torch.allclose(grad_in(net, x), whole * 3)
    assert trace["relu"].output.abs().sum() == 0


@pytest.mark.parametrize(
    "wrong", [lambda out, **_: None, lambda out, **_: out[:1], lambda out, **_: (out,), lambda out, **_: "x"]
)
def test_an_edited_output_of_another_shape_is_an_error(wrong):
    net = seeded(Founding)

    with pytest.raises(ShapeMismatchError, match="'fc1'"), edit_output(net, "fc1", wrong):
        net(images(1))


def test_an_edit_may_call_the_layer_it_edits():
    net, x = seeded(Reusing), vectors()

    with edit_output(net, "a", lambda output, *, name, call: net.a(output) * 2):
        out = net(x)

    assert torch.equal(out, net.act(net.b(F.relu(net.a(net.a(x)) * 2))))
