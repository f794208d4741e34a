from collections import OrderedDict

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from robustkit.errors import UserError
from robustkit.nethook import ShapeMismatchError, StaleActivationError, Trace, UnfiredLayerError
from robustkit.nethook.structure import tensors
from tests.nethook.nets import (
    Answer,
    Net,
    Overwriting,
    Pair,
    Reusing,
    hook_count,
    images,
    keyworded,
    overwriting_and_copying,
    residual,
    seeded,
    tied,
    vectors,
    wrapping,
)


def two_layers() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU()))


def test_each_run_of_a_layer_has_its_inputs_and_outputs():
    net, x = seeded(Reusing), vectors()

    with Trace(net, ["act", "a"], input=True) as trace:
        out = net(x)
    first, second = trace["act"].calls

    assert torch.equal(trace["a"].input, x)
    assert torch.equal(trace["a"].output, net.a(x))
    assert torch.equal(first.input, net.a(x))
    assert torch.equal(second.output, out)
    assert [(call.name, call.index, call.order) for call in trace.calls] == [("a", 0, 0), ("act", 0, 1), ("act", 1, 2)]


def test_runs_are_numbered_anew_with_each_forward_pass():
    net = seeded(Reusing)

    with Trace(net, "act") as trace:
        net(vectors(seed=1))
        net(vectors(seed=2))

    assert [call.index for call in trace["act"].calls] == [0, 1, 0, 1]


def test_values_do_not_change_when_a_later_layer_overwrites_them():
    (net, plain), x = overwriting_and_copying(), images()

    with Trace(net, ["conv", "relu"], input=True) as trace:
        net(x)
    with Trace(net, "conv", reduce=lambda tensor, *, name, call: tensor[:, 0]) as view:
        net(x)

    assert torch.equal(trace["conv"].output, plain.conv(x))
    assert torch.equal(trace["relu"].input, plain.conv(x))
    assert torch.equal(view["conv"].output, plain.conv(x)[:, 0])


def test_a_tensor_that_several_layers_share_is_copied_once_until_it_is_overwritten():
    net, x = nn.Sequential(nn.Sequential(nn.Linear(6, 6)), nn.ReLU(inplace=True)), vectors()

    with Trace(net, input=True) as trace:
        net(x)

    assert trace["0.0"].output is trace["0"].output is trace["1"].input
    assert trace["0"].output.min() < 0 == trace["1"].output.min()
    assert trace["0.0"].input is trace["0"].input is not x


def test_a_value_recorded_without_a_copy_cannot_be_read_once_it_is_overwritten():
    net = seeded(Overwriting)

    with Trace(net, ["conv", "fc"], clone=False) as trace:
        out = net(images())

    assert trace["fc"].output.data_ptr() == out.data_ptr()
    with pytest.raises(StaleActivationError, match="clone=True"):
        _ = trace["conv"].output


def test_losses_can_be_built_on_outputs_recorded_with_their_graph():
    (net, plain), x = overwriting_and_copying(), images()

    with Trace(net, "conv", detach=False) as trace, Trace(net, "conv") as detached:
        net(x)
    trace["conv"].output.square().sum().backward()
    plain.conv(x).square().sum().backward()

    assert torch.equal(net.conv.weight.grad, plain.conv.weight.grad)
    assert not detached["conv"].output.requires_grad


class ModelOutput(OrderedDict):
    """As in transformers: items are attributes, too."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, b],
        Pair,
        lambda a, b: Pair(a, None),
        lambda a, b: {"a": a, "b": b},
        lambda a, b: OrderedDict(a=a, b=(b, None)),
        lambda a, b: ModelOutput(a=a, b=b),
        lambda a, b: Answer(a, (b, b)),
        lambda a, b: torch.max(a.expand(1, 4, 6), 0),
    ],
)
def test_wrapped_outputs_are_recorded_in_their_wrapping(wrap):
    net, x = seeded(lambda: wrapping(wrap)), vectors().requires_grad_()
    plain = net.inner(x)

    with Trace(net, "inner", grad=True) as trace:
        trace.grad(net(x).sum())
    output, grad = trace["inner"].output, trace["inner"].grad

    assert type(output) is type(grad) is type(plain)
    assert all(torch.equal(*pair) for pair in zip(tensors(output), tensors(plain), strict=True))
    assert not any(part.requires_grad for part in tensors(output))
    if isinstance(output, ModelOutput):
        assert output.a is output["a"]


def test_the_gradient_at_a_recurrent_layer_is_a_packed_sequence():
    """PackedSequence takes tensors only; the model's call failed with an AssertionError."""
    net = Net(lambda net, x: net.gru(pack_padded_sequence(x, [6, 5], True))[0].data, gru=nn.GRU(4, 5, batch_first=True))

    with Trace(net, "gru", input=True, grad=True) as trace:
        out = net(images()[:2, 0, :6, :4])
        grads = trace.grad(out.square().sum())["gru"]

    assert type(grads[0]) is type(trace["gru"].input) is PackedSequence
    assert torch.equal(grads[0].data, 2 * out)


def test_each_tensor_of_a_wrapped_output_has_its_own_gradient():
    net, x = seeded(lambda: wrapping(lambda a, b: Answer(a, (b, b * 3)))), vectors().requires_grad_()

    with Trace(net, "inner", grad=True) as trace:
        out = net(x)
        grads = trace.grad((out * torch.arange(6)).sum())["inner"]

    wanted = torch.arange(6.0).expand(4, 6)
    assert torch.equal(grads.logits, wanted)
    # The third tensor is three times the second.
    assert torch.equal(grads.hidden[0], 4 * wanted)
    assert torch.equal(grads.hidden[1], wanted)


def test_keyword_arguments_are_recorded_by_name():
    net, x = keyworded(), vectors()

    with Trace(net, "mix", input=True) as trace:
        net(x)

    assert list(trace["mix"].calls[0].kwargs) == ["left", "right"]
    assert torch.equal(trace["mix"].input[1], x * 2)


def test_a_tied_layer_can_be_read_by_both_names():
    net = seeded(tied)

    with Trace(net, "decoder") as trace:
        net(vectors())

    assert len(trace["encoder"].calls) == len(trace["decoder"].calls) == 2


def test_an_edit_may_change_one_run_and_keep_another():
    net, x, calls = seeded(Reusing), vectors(), []

    def edit(output, *, name, call):
        calls.append((name, call))
        return None if call == 0 else output + 1

    plain = net(x)
    with Trace(net, "act", edit=edit) as trace:
        out = net(x)

    assert calls == [("act", 0), ("act", 1)]
    assert torch.equal(out, plain + 1)
    assert torch.equal(trace["act"].output, out)
    assert torch.equal(trace["act"].raw, plain)


def test_an_edit_that_returns_another_shape_is_an_error():
    net = seeded(Reusing)

    with pytest.raises(ShapeMismatchError, match="'a'"), Trace(net, "a", edit=lambda out, *, name, call: out[:2]):
        net(vectors())


def test_stopping_leaves_the_body_and_runs_no_layer_after_the_last_chosen_one():
    net, x, ran = seeded(Reusing), vectors(), []
    net.act.register_forward_hook(lambda *_: ran.append("act"))

    with Trace(net, ["b", "a"], stop=True) as trace:
        ran.append("before")
        net(x)
        ran.append("after")

    assert ran == ["before", "act"]
    assert torch.equal(trace["a"].output, net.a(x))
    assert torch.equal(trace["b"].output, net.b(net.act(net.a(x))))


def catching(kind: type[BaseException]) -> nn.Module:
    def run(net, x):
        try:
            return net.inner(x)
        except kind:
            return x

    return Net(run, inner=seeded(Reusing))


def test_a_model_that_catches_exceptions_is_stopped_and_one_that_catches_all_is_an_error():
    careful, greedy = catching(Exception), catching(BaseException)

    with Trace(careful, "inner.a", stop=True) as trace:
        careful(vectors())
    with pytest.raises(UserError, match="stop=False"), Trace(greedy, "inner.a", stop=True):
        greedy(vectors())

    assert len(trace.calls) == 1


def test_the_inner_of_two_traces_may_stop_alone():
    net, x = seeded(Reusing), vectors()

    with Trace(net, "b") as outer:
        with Trace(net, "a", stop=True) as inner:
            net(x)
        net(x)

    assert len(inner.calls) == len(outer.calls) == 1


def test_a_layer_that_never_ran_is_an_error_unless_that_is_allowed():
    net = two_layers()

    with pytest.raises(UnfiredLayerError, match="'1'"), Trace(net, ["0", "1"]):
        net[0](vectors())
    with Trace(net, ["0", "1"], strict=False) as trace:
        net[0](vectors())

    assert trace.unseen == ("1",)
    with pytest.raises(UnfiredLayerError):
        _ = trace["1"].output


def test_a_model_that_catches_an_error_of_its_layer_is_traced_further():
    def run(net, x):
        try:
            return net.wide(x)
        except RuntimeError:
            return net.narrow(x)

    net, x = seeded(lambda: Net(run, wide=nn.Sequential(nn.Linear(9, 6)), narrow=nn.Linear(6, 6))), vectors()

    with Trace(net, ["", "narrow"]) as trace:
        net(x)
    with pytest.raises(UnfiredLayerError, match="'wide'"), Trace(net, ["wide", "narrow"]):
        net(x)

    assert [call.name for call in trace.calls] == ["narrow", ""]


def test_star_ignores_layers_that_never_run_but_one_must_run():
    net = seeded(Reusing)
    net.never = nn.Linear(1, 1)

    with Trace(net) as trace:
        net(vectors())

    assert trace.unseen == ("never",)
    with pytest.raises(UnfiredLayerError), Trace(net):
        pass


def test_an_error_of_the_body_is_not_hidden_by_a_layer_that_never_ran():
    with pytest.raises(ZeroDivisionError), Trace(seeded(Reusing), "a"):
        _ = 1 / 0


def test_reduce_replaces_every_recorded_tensor():
    net, x = seeded(Overwriting), images()

    with Trace(net, ["conv", "fc"], input=True, reduce=lambda t, *, name, call: t.flatten(1).norm(dim=1)) as trace:
        net(x)

    assert torch.equal(trace["conv"].output, net.conv(x).flatten(1).norm(dim=1))
    assert torch.equal(trace["conv"].input, x.flatten(1).norm(dim=1))
    with pytest.raises(UserError, match="reduce"), Trace(net, "conv", reduce=lambda t, *, name, call: t.sum().item()):
        net(x)


def test_values_can_be_stored_on_another_device_as_copies():
    net, x = seeded(Overwriting), images()

    with Trace(net, "conv", device="cpu") as trace, Trace(net, "conv", device="meta") as moved:
        net(x)

    assert torch.equal(trace["conv"].output, net.conv(x))
    assert moved["conv"].output.device.type == "meta"


def test_reading_what_was_not_recorded_is_an_error():
    net = seeded(Reusing)
    with Trace(net, "a", output=False) as trace:
        net(vectors())

    for part in ("output", "input", "grad"):
        with pytest.raises(UserError, match=f"{part}=True"):
            getattr(trace["a"], part)
    with pytest.raises(UserError, match="grad=True"):
        trace.grad(torch.ones((), requires_grad=True))
    with pytest.raises(UserError, match="layers="):
        _ = trace["b"]


def test_a_trace_can_be_used_again_but_not_inside_itself():
    net = seeded(Reusing)
    trace = Trace(net, "a")

    for seed in (1, 2):
        with trace:
            net(vectors(seed=seed))
    assert len(trace.calls) == 1
    assert torch.equal(trace["a"].output, net.a(vectors(seed=2)))
    with pytest.raises(UserError, match="open already"), trace, trace:
        pass
    assert hook_count(net) == 0


def test_outputs_recorded_under_inference_mode_can_be_used_by_autograd():
    net = seeded(Reusing)

    with torch.inference_mode(), Trace(net, "a", input=True) as trace:
        net(vectors())

    assert not trace["a"].output.is_inference()
    (trace["a"].output * torch.ones(6, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("options", [{}, {"reduce": lambda x, **_: x[:, 1:]}, {"reduce": lambda x, **_: x * 2}])
def test_copies_under_inference_mode_of_tensors_from_outside_can_be_used_by_autograd(options):
    """The copy of an image that was made before the mode was an inference tensor, because it was made inside."""
    net = seeded(Reusing)
    x = vectors().requires_grad_()

    with torch.inference_mode(), Trace(net, "a", input=True, **options) as trace:
        net(x)
    copy = trace["a"].input

    assert not copy.is_inference()
    assert not copy.requires_grad
    (copy * torch.ones(1, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("options", [{"clone": False}, {"detach": False}, {"grad": True}])
def test_options_that_inference_mode_does_not_allow_are_an_error(options):
    net = seeded(Reusing)

    with torch.inference_mode(), pytest.raises(UserError, match="inference_mode"), Trace(net, "a", **options):
        net(vectors())


def test_tensors_of_torch_func_are_an_error():
    net = seeded(Reusing)

    with pytest.raises(UserError, match=r"torch\.func"), Trace(net, "a"):
        torch.func.grad(lambda x: net(x).sum())(vectors())


class Naming(nn.Module):
    def forward(self, x):
        return "name", x * 2, 3


def test_what_is_no_tensor_has_no_gradient():
    # It was returned as its own gradient.
    net = nn.ModuleDict({"named": Naming()})
    x = vectors().requires_grad_()

    with Trace(net, "named", grad=True) as trace:
        grads = trace.grad(net["named"](x)[1].sum())

    assert grads["named"][0] is grads["named"][2] is None
    assert torch.equal(grads["named"][1], torch.ones_like(x))


def test_a_whole_resnet_is_traced_call_by_call():
    net, x = seeded(lambda: torchvision.models.resnet18(num_classes=10)).eval(), images(2, size=32)
    plain = net(x)

    with Trace(net, grad=True) as trace:
        out = net(x)
        grads = trace.grad(out.sum())

    assert torch.equal(out, plain)
    assert [len(trace[f"layer{number}.0.relu"].calls) for number in (1, 2, 3, 4)] == [2, 2, 2, 2]
    assert trace.unseen == ()
    assert all(grad is not None and grad.shape == trace[name].output.shape for name, grad in grads.items())


def test_the_values_of_one_row_do_not_depend_on_its_batch():
    net, x = seeded(residual).double(), vectors(5).double().requires_grad_()

    def recorded(rows):
        with Trace(net, "branch", grad=True) as trace:
            grads = trace.grad(net(rows).square().sum())
        return torch.cat([trace["branch"].output, grads["branch"]], 1)

    # Matrix products of other sizes round differently.
    assert torch.allclose(recorded(x), torch.cat([recorded(row[None]) for row in x]), atol=1e-14)


def test_a_second_gradient_of_one_loss_ended_with_an_error_of_torch():
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    with Trace(network, ["0"], grad=True) as trace:
        loss = network(torch.ones(1, 2)).sum()
        trace.grad(loss)

        with pytest.raises(UserError, match="retain_graph=True"):
            trace.grad(loss)
