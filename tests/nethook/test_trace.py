from collections import OrderedDict

import pytest
import torch
import torchvision
from torch import nn

from robustkit.errors import UserError
from robustkit.nethook import ShapeMismatchError, StaleActivationError, Trace, UnfiredLayerError
from robustkit.nethook.structure import tensors
from tests.nethook.nets import (
    Answer,
    Around,
    Keyworded,
    Overwriting,
    Pair,
    Residual,
    Reusing,
    Shaped,
    Tied,
    count,
    images,
    seeded,
    vectors,
)


def test_outputs_and_inputs_are_what_the_layer_saw():
    net, x = seeded(Reusing), vectors()

    with Trace(net, "a", input=True) as trace:
        net(x)

    assert torch.equal(trace["a"].input, x)
    assert torch.equal(trace["a"].output, net.a(x))


def test_a_layer_that_runs_twice_keeps_both_runs():
    net, x = seeded(Reusing), vectors()

    with Trace(net, ["act", "a"], input=True) as trace:
        out = net(x)
    first, second = trace["act"].calls

    assert torch.equal(first.input, net.a(x))
    assert torch.equal(second.output, out)
    assert [(call.name, call.index, call.order) for call in trace.calls] == [("a", 0, 0), ("act", 0, 1), ("act", 1, 2)]


def test_runs_are_numbered_anew_with_each_forward_pass():
    net = seeded(Reusing)

    with Trace(net, "act") as trace:
        net(vectors(seed=1))
        net(vectors(seed=2))

    assert [call.index for call in trace["act"].calls] == [0, 1, 0, 1]


def test_an_output_survives_a_layer_that_overwrites_it():
    net, plain, x = seeded(Overwriting), seeded(lambda: Overwriting(inplace=False)), images()

    with Trace(net, "conv") as trace:
        net(x)

    assert torch.equal(trace["conv"].output, plain.conv(x))


def test_an_input_survives_the_layer_that_overwrites_it():
    net, plain, x = seeded(Overwriting), seeded(lambda: Overwriting(inplace=False)), images()

    with Trace(net, "relu", input=True) as trace:
        net(x)

    assert torch.equal(trace["relu"].input, plain.conv(x))


def test_a_tensor_that_several_layers_share_is_copied_once_until_it_is_overwritten():
    net, x = nn.Sequential(nn.Sequential(nn.Linear(6, 6)), nn.ReLU(inplace=True)), vectors()

    with Trace(net, input=True) as trace:
        net(x)

    assert trace["0.0"].output is trace["0"].output is trace["1"].input
    assert trace["0"].output.min() < 0 == trace["1"].output.min()
    assert trace["0.0"].input is trace["0"].input is not x


def test_a_value_kept_without_a_copy_is_refused_once_it_is_overwritten():
    net = seeded(Overwriting)

    with Trace(net, ["conv", "fc"], clone=False) as trace:
        out = net(images())

    assert trace["fc"].output.data_ptr() == out.data_ptr()
    with pytest.raises(StaleActivationError, match="clone=True"):
        _ = trace["conv"].output


def test_losses_can_be_built_on_outputs_that_keep_their_graph():
    net, plain, x = seeded(Overwriting), seeded(lambda: Overwriting(inplace=False)), images()

    with Trace(net, "conv", detach=False) as trace:
        net(x)
    trace["conv"].output.square().sum().backward()
    plain.conv(x).square().sum().backward()

    assert torch.equal(net.conv.weight.grad, plain.conv.weight.grad)


def test_detached_outputs_hold_no_graph():
    net = seeded(Reusing)

    with Trace(net, "a") as trace:
        net(vectors())

    assert not trace["a"].output.requires_grad


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, b],
        Pair,
        lambda a, b: Pair(a, None),
        lambda a, b: {"a": a, "b": b},
        lambda a, b: OrderedDict(a=a, b=(b, None)),
        lambda a, b: Answer(a, (b, b)),
        lambda a, b: torch.max(a.expand(1, 4, 6), 0),
    ],
)
def test_wrapped_outputs_come_back_in_their_wrapping(wrap):
    net, x = seeded(lambda: Around(Shaped(wrap))), vectors().requires_grad_()
    plain = net.inner(x)

    with Trace(net, "inner", grad=True) as trace:
        trace.grad(net(x).sum())
    kept, grad = trace["inner"].output, trace["inner"].grad

    assert type(kept) is type(grad) is type(plain)
    assert all(torch.equal(*pair) for pair in zip(tensors(kept), tensors(plain), strict=True))


def test_each_tensor_of_a_wrapped_output_has_its_own_gradient():
    net, x = seeded(lambda: Around(Shaped(lambda a, b: Answer(a, (b, b * 3))))), vectors().requires_grad_()

    with Trace(net, "inner", grad=True) as trace:
        out = net(x)
        grads = trace.grad((out * torch.arange(6)).sum())["inner"]

    wanted = torch.arange(6.0).expand(4, 6)
    assert torch.equal(grads.logits, wanted)
    # It also makes the third.
    assert torch.equal(grads.hidden[0], 4 * wanted)
    assert torch.equal(grads.hidden[1], wanted)


def test_a_model_output_of_transformers_kind_keeps_items_and_attributes_in_step():
    class ModelOutput(OrderedDict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            super().__setattr__(key, value)

    def wrap(a, b):
        out = ModelOutput()
        out["logits"], out["aux"] = a, b
        return out

    net = seeded(lambda: Around(Shaped(wrap)))
    with Trace(net, "inner") as trace:
        net(vectors())
    kept = trace["inner"].output

    assert kept.logits is kept["logits"]
    assert not kept.logits.requires_grad


def test_a_layer_called_with_keywords_shows_them():
    net, x = Keyworded(), vectors()

    with Trace(net, "mix", input=True) as trace:
        net(x)

    assert list(trace["mix"].calls[0].kwargs) == ["left", "right"]
    assert torch.equal(trace["mix"].input[1], x * 2)


def test_a_tied_layer_answers_to_both_names():
    net = seeded(Tied)

    with Trace(net, "decoder") as trace:
        net(vectors())

    assert len(trace["encoder"].calls) == len(trace["decoder"].calls) == 2


def test_an_edit_changes_what_the_model_goes_on_with_and_what_is_kept():
    net, x = seeded(Reusing), vectors()

    with Trace(net, "a", edit=lambda output, *, name, call: output * 0) as trace:
        out = net(x)

    assert torch.equal(trace["a"].output, torch.zeros(4, 6))
    assert torch.equal(trace["a"].raw, net.a(x))
    assert torch.equal(out, net.act(net.b(torch.zeros(4, 6))))


def test_an_edit_knows_the_layer_and_the_run_and_may_leave_it_alone():
    net, x, seen = seeded(Reusing), vectors(), []

    def edit(output, *, name, call):
        seen.append((name, call))
        return None if call == 0 else output + 1

    plain = net(x)
    with Trace(net, "act", edit=edit):
        out = net(x)

    assert seen == [("act", 0), ("act", 1)]
    assert torch.equal(out, plain + 1)


def test_an_edit_that_returns_another_shape_is_refused():
    net = seeded(Reusing)

    with pytest.raises(ShapeMismatchError, match="'a'"), Trace(net, "a", edit=lambda out, *, name, call: out[:2]):
        net(vectors())


def test_stopping_saves_what_comes_after_the_last_chosen_layer_to_run():
    net, x, ran = seeded(Reusing), vectors(), []

    with Trace(net, ["b", "a"], stop=True) as trace:
        ran.append("before")
        net(x)
        ran.append("after")

    assert ran == ["before"]
    assert torch.equal(trace["a"].output, net.a(x))
    assert torch.equal(trace["b"].output, net.b(net.act(net.a(x))))


def test_stopping_runs_no_later_layer():
    net, later = seeded(Reusing), []
    net.act.register_forward_hook(lambda *_: later.append(1))

    with Trace(net, "a", stop=True):
        net(vectors())

    assert not later


def test_stopping_goes_through_a_model_that_catches_exceptions():
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = seeded(Reusing)

        def forward(self, x):
            try:
                return self.inner(x)
            except Exception:
                return x

    with Trace(Careful(), "inner.a", stop=True) as trace:
        trace.model(vectors())

    assert len(trace.calls) == 1


def test_a_model_that_swallows_the_stop_is_reported():
    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = seeded(Reusing)

        def forward(self, x):
            try:
                return self.inner(x)
            except BaseException:
                return x

    net = Greedy()

    with pytest.raises(UserError, match="stop=False"), Trace(net, "inner.a", stop=True):
        net(vectors())


def test_stopping_without_reaching_the_layer_names_it():
    net = seeded(Reusing)

    with pytest.raises(UnfiredLayerError, match="'a'"), Trace(net, "a", stop=True):
        pass


def test_the_inner_of_two_traces_may_stop_alone():
    net, x = seeded(Reusing), vectors()

    with Trace(net, "b") as outer:
        with Trace(net, "a", stop=True) as inner:
            net(x)
        net(x)

    assert len(inner.calls) == len(outer.calls) == 1


def test_a_layer_that_never_ran_is_an_error():
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU()))

    with pytest.raises(UnfiredLayerError, match="'1'"), Trace(net, ["0", "1"]):
        net[0](vectors())


def test_a_model_that_mends_an_error_of_its_layer_is_traced_on():
    class Mending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Sequential(nn.Linear(9, 6)), nn.Linear(6, 6)

        def forward(self, x):
            try:
                return self.wide(x)
            except RuntimeError:
                return self.narrow(x)

    net, x = seeded(Mending), vectors()

    with Trace(net, ["", "narrow"]) as trace:
        net(x)
    with pytest.raises(UnfiredLayerError, match="'wide'"), Trace(net, ["wide", "narrow"]):
        net(x)

    assert [call.name for call in trace.calls] == ["narrow", ""]


def test_a_layer_that_never_ran_is_unseen_if_that_is_allowed():
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU()))

    with Trace(net, ["0", "1"], strict=False) as trace:
        net[0](vectors())

    assert trace.unseen == ("1",)
    with pytest.raises(UnfiredLayerError):
        _ = trace["1"].output


def test_star_is_whatever_runs_but_something_must():
    class Spare(Reusing):
        def __init__(self) -> None:
            super().__init__()
            self.never = nn.Linear(1, 1)

    net = seeded(Spare)
    with Trace(net) as trace:
        net(vectors())

    assert trace.unseen == ("never",)
    with pytest.raises(UnfiredLayerError), Trace(net):
        pass


def test_an_error_of_the_body_is_not_hidden_by_a_layer_that_never_ran():
    with pytest.raises(ZeroDivisionError), Trace(seeded(Reusing), "a"):
        _ = 1 / 0


def test_what_is_reduced_on_the_fly_is_all_that_is_kept():
    net, x = seeded(Overwriting), images()

    def norms(tensor, *, name, call):
        return tensor.flatten(1).norm(dim=1)

    with Trace(net, ["conv", "fc"], input=True, reduce=norms) as trace:
        net(x)

    assert torch.equal(trace["conv"].output, net.conv(x).flatten(1).norm(dim=1))
    assert torch.equal(trace["conv"].input, x.flatten(1).norm(dim=1))


def test_a_reduction_that_returns_a_view_keeps_a_copy():
    net, plain, x = seeded(Overwriting), seeded(lambda: Overwriting(inplace=False)), images()

    with Trace(net, "conv", reduce=lambda tensor, *, name, call: tensor[:, 0]) as trace:
        net(x)

    assert torch.equal(trace["conv"].output, plain.conv(x)[:, 0])


def test_a_reduction_must_return_a_tensor():
    net = seeded(Overwriting)

    with pytest.raises(UserError, match="reduce"), Trace(net, "conv", reduce=lambda t, *, name, call: t.sum().item()):
        net(images())


def test_values_can_be_kept_on_another_device_as_copies():
    net, x = seeded(Overwriting), images()

    with Trace(net, "conv", device="cpu") as trace:
        net(x)
    with Trace(net, "conv", device="meta") as moved:
        net(x)

    assert torch.equal(trace["conv"].output, net.conv(x))
    assert moved["conv"].output.device.type == "meta"


def test_what_was_not_asked_for_is_an_error_to_read():
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
    assert count(net) == 0


def test_outputs_kept_under_inference_mode_can_be_used_by_autograd():
    net = seeded(Reusing)

    with torch.inference_mode(), Trace(net, "a", input=True) as trace:
        net(vectors())

    assert not trace["a"].output.is_inference()
    (trace["a"].output * torch.ones(6, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("options", [{"clone": False}, {"detach": False}, {"grad": True}])
def test_what_inference_mode_cannot_give_is_refused(options):
    net = seeded(Reusing)

    with torch.inference_mode(), pytest.raises(UserError, match="inference_mode"), Trace(net, "a", **options):
        net(vectors())


def test_tensors_of_torch_func_are_not_carried_out_of_it():
    net = seeded(Reusing)

    with pytest.raises(UserError, match=r"torch\.func"), Trace(net, "a"):
        torch.func.grad(lambda x: net(x).sum())(vectors())


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


def test_what_one_row_shows_does_not_depend_on_its_batch():
    net, x = seeded(Residual).double().eval(), vectors(5).double().requires_grad_()

    def seen(rows):
        with Trace(net, "branch", grad=True) as trace:
            grads = trace.grad(net(rows).square().sum())
        return torch.cat([trace["branch"].output, grads["branch"]], 1)

    # Matrix products of other sizes round otherwise.
    assert torch.allclose(seen(x), torch.cat([seen(row[None]) for row in x]), atol=1e-14)
