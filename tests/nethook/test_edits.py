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
    Around,
    Founding,
    Keyworded,
    Overwriting,
    Residual,
    Reusing,
    Shaped,
    images,
    seeded,
    vectors,
)


def grad_in(net: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(net(x).sum(), x)[0]


def test_a_scaled_branch_leaves_the_skip_connection_alone():
    net, x = seeded(Residual).eval(), vectors()
    whole = grad_in(net, x)

    with scale_grad(net, "drop", 0.0):
        skip = grad_in(net, x)

    # Dropout returns its very input in eval mode: a hook on that tensor would reach the skip connection, too.
    assert torch.equal(skip, whole / 2)


def test_a_scaled_input_leaves_the_skip_connection_alone():
    net, x = seeded(Residual).eval(), vectors()
    whole = grad_in(net, x)

    with scale_grad(net, "drop", 0.5, at="input"):
        assert torch.allclose(grad_in(net, x), whole * 0.75)


@pytest.mark.parametrize("at", ["input", "output"])
def test_overwriting_layers_get_the_gradients_of_copying_ones(at):
    net, plain, x = seeded(Overwriting), seeded(lambda: Overwriting(inplace=False)), images()

    found = []
    for each in (net, plain):
        with edit_grad(each, ["conv", "relu"], lambda grad, *, name, call: grad.clamp(min=0) * 3, at=at):
            found.append(grad_in(each, x))

    assert torch.equal(*found)


@pytest.mark.parametrize("at", ["input", "output"])
def test_a_model_that_goes_on_with_the_overwritten_input_computes_the_same(at):
    class Sloppy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.relu = nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.conv(x)
            self.relu(hidden)
            return hidden * 2

    net, x = seeded(Sloppy), images()
    plain = net(x)
    whole = grad_in(net, x)

    with scale_grad(net, "relu", 0.5, at=at), scale_grad(net, "relu", 0.5, at=at), Trace(net, "relu") as trace:
        assert torch.equal(net(x), plain)
        assert torch.equal(grad_in(net, x), whole / 4)
    assert torch.equal(trace["relu"].output, plain / 2)


def test_an_edit_knows_the_layer_and_the_run():
    net, seen = seeded(Reusing), []

    def edit(grad, *, name, call):
        seen.append((name, call))
        return grad

    with edit_grad(net, ["act", "a"], edit):
        for _ in range(2):
            grad_in(net, vectors())

    assert seen == [("act", 1), ("act", 0), ("a", 0)] * 2


def test_one_run_of_a_reused_layer_can_be_chosen():
    net, x = seeded(Reusing), vectors()
    whole = grad_in(net, x)

    with edit_grad(net, "act", lambda grad, *, name, call: grad * 3 if call == 0 else grad):
        assert torch.allclose(grad_in(net, x), whole * 3)


def test_edits_of_one_layer_compose():
    net, x = seeded(Founding), images(1)
    whole = grad_in(net, x)

    with scale_grad(net, "relu", 2.0), scale_grad(net, "relu", 4.0, at="input"), scale_grad(net, "relu", 0.5):
        assert torch.equal(grad_in(net, x), whole * 4)


def test_clamping_keeps_gradients_out_that_lie_outside():
    net, x = seeded(Founding), images(1)

    with clamp_grad(net, "conv", min=0.0):
        above = grad_in(net, x)
    with clamp_grad(net, "conv", min=-0.01, max=0.02):
        between = grad_in(net, x)

    whole = grad_in(net, x)
    assert torch.equal(above, whole.clamp(min=0))
    assert torch.equal(between, whole.clamp(-0.01, 0.02))


def test_the_backward_pass_may_come_after_the_context():
    net, x = seeded(Founding), images(1).requires_grad_()
    whole = grad_in(net, x)

    with scale_grad(net, "conv", 0.5):
        out = net(x)
    out.sum().backward()

    assert torch.equal(x.grad, whole / 2)


def test_all_tensors_of_a_wrapped_output_are_edited():
    net, x = seeded(lambda: Around(Shaped(lambda a, b: Answer(a, (b, None))))), vectors()
    whole = grad_in(net, x)

    with scale_grad(net, "inner", 0.5):
        assert torch.equal(grad_in(net, x), whole / 2)


def test_inputs_given_by_keyword_are_edited():
    net, x = Keyworded(), vectors()
    whole = grad_in(net, x)

    with scale_grad(net, "mix", 0.5, at="input"):
        assert torch.equal(grad_in(net, x), whole / 2)


def test_a_gradient_edit_changes_no_output():
    net, x = seeded(lambda: torchvision.models.resnet18(num_classes=10)).eval(), images(2, size=32).requires_grad_()
    plain = net(x)

    with scale_grad(net, "*", 0.5), clamp_grad(net, "*", min=-1.0):
        assert torch.equal(net(x), plain)


@pytest.mark.parametrize(
    "wrong", [lambda grad, **_: None, lambda grad, **_: grad[..., :1], lambda grad, **_: grad.sum()]
)
def test_an_edit_that_returns_no_gradient_of_that_shape_is_refused(wrong):
    net = seeded(Founding)

    with edit_grad(net, "conv", wrong), pytest.raises(ShapeMismatchError):
        grad_in(net, images(1))


def test_an_edit_that_writes_into_its_argument_is_refused():
    net = seeded(Founding)

    with edit_grad(net, "conv", lambda grad, *, name, call: grad.mul_(2)), pytest.raises(UserError, match="new tensor"):
        grad_in(net, images(1))


def test_a_gradient_that_can_never_arrive_is_an_error():
    net = seeded(Founding)

    with pytest.raises(UnfiredLayerError, match="requires_grad"), clamp_grad(net, "conv", min=0):
        net(images(1)).sum().backward()


def test_a_layer_that_the_model_runs_without_gradients_has_none_to_edit():
    class Quiet(Founding):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.conv(x)
            return self.fc1(self.flatten(x))

    net = seeded(Quiet)

    with pytest.raises(UnfiredLayerError, match="no_grad"), scale_grad(net, "conv", 0.5):
        net(images(1).requires_grad_()).sum().backward()


def test_an_evaluation_without_gradients_inside_an_edit_is_none():
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


def test_a_place_must_be_input_or_output_and_a_clamp_must_have_an_end():
    net = seeded(Founding)

    with pytest.raises(UserError, match="at must be"), scale_grad(net, "conv", 1.0, at="weight"):
        pass
    with pytest.raises(UserError, match="min, max"):
        clamp_grad(net, "conv")


def test_an_edited_output_is_what_the_model_goes_on_with():
    net, x = seeded(Founding), images(1)

    with edit_output(net, "relu", lambda output, *, name, call: output * 0):
        assert torch.equal(net(x), net.fc1.bias)


def test_gradients_go_through_an_edited_output():
    net, x = seeded(Founding), images(1)
    whole = grad_in(net, x)

    with edit_output(net, "fc1", lambda output, *, name, call: output * 3):
        assert torch.allclose(grad_in(net, x), whole * 3)


@pytest.mark.parametrize(
    "wrong", [lambda out, **_: None, lambda out, **_: out[:1], lambda out, **_: (out,), lambda out, **_: "x"]
)
def test_an_edited_output_of_another_shape_is_refused(wrong):
    net = seeded(Founding)

    with (
        pytest.raises(ShapeMismatchError, match="'fc1'"),
        edit_output(net, "fc1", wrong),
    ):
        net(images(1))


def test_a_trace_inside_sees_the_edited_output():
    net, x = seeded(Founding), images(1)

    with edit_output(net, "relu", lambda output, *, name, call: output * 0), Trace(net, "relu") as trace:
        net(x)

    assert trace["relu"].output.abs().sum() == 0


def test_an_edit_may_call_the_layer_it_edits():
    net, x = seeded(Reusing), vectors()

    with edit_output(net, "a", lambda output, *, name, call: net.a(output) * 2):
        out = net(x)

    assert torch.equal(out, net.act(net.b(F.relu(net.a(net.a(x)) * 2))))
