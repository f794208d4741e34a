"""Traces with known numbers, and what the numbers must not depend on."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from robustkit import Classifier, UserError
from robustkit.testing.problems import SmallConvNet
from robustkit.tracing import Traced, trace
from robustkit.tracing.cka import cka, gram
from robustkit.tracing.grams import grams
from robustkit.tracing.passes import Key, Runner
from robustkit.tracing.traced import MEASURES
from tests.problems import problem
from tests.tracing.nets import Aside, Function, Twice, built, linear_net

torch.set_num_threads(1)


def cnn() -> nn.Module:
    return SmallConvNet((1, 8, 8), 3)


def values(traced: Traced, measure: str) -> list[torch.Tensor]:
    return [call.values[measure] for call in traced.calls]


def same(one: Traced, other: Traced) -> bool:
    return all(
        torch.equal(mine.values[name].nan_to_num(-7), theirs.values[name].nan_to_num(-7))
        for mine, theirs in zip(one.calls, other.calls, strict=True)
        for name in MEASURES
    )


def test_in_a_linear_network_the_attribution_of_every_layer_is_the_margins_change():
    model, x, x_adv, y = built(linear_net(), 6)
    traced = trace(model, x, y, x_adv=x_adv)
    before, after = model(x).detach(), model(x_adv).detach()
    rival = after.scatter(1, y[:, None], -torch.inf).argmax(1)
    rows = torch.arange(len(x))
    change = (after[rows, rival] - after[rows, y]) - (before[rows, rival] - before[rows, y])

    assert len(traced.calls) == 5
    assert traced.calls[0].key == Key("(input)", 0)
    assert change.abs().min() > 1e-6
    assert torch.allclose(traced.margin_change, change)
    for attribution in values(traced, "margin"):
        assert torch.allclose(attribution, traced.margin_change, rtol=1e-9, atol=0)


def test_a_perturbation_of_zero_changes_nothing():
    model, x, _, y = built(cnn(), 1, 8, 8)
    traced = trace(model, x, y, x_adv=x.clone())

    for call in traced.calls:
        assert not call.values["relative"].any()
        assert not call.values["margin"].any()
        assert bool((call.values["cosine"] == 1).all())
        assert bool((call.values["flips"].nan_to_num(0) == 0).all())
        assert call.values["gain"].isnan().all()
        assert traced.cka(call) == 1
    assert traced.steepest == []
    assert traced.groups == ["all"]


def test_an_orthogonal_layer_changes_no_ratio():
    model, x, x_adv, y = built(nn.Sequential(nn.Flatten(), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)), 6)
    with torch.no_grad():
        model[1].weight.copy_(torch.linalg.qr(model[1].weight).Q)
    y = model(x).argmax(1)
    traced = trace(model, x, y, x_adv=x_adv)
    first, call = traced.calls[0], traced.calls[2]

    assert torch.allclose(call.values["gain"], torch.ones(len(x), dtype=torch.float64))
    assert torch.allclose(call.values["amplification"], torch.ones(len(x), dtype=torch.float64))
    assert traced.cka(call) == pytest.approx(traced.cka(first))


def test_the_only_layer_that_enlarges_the_perturbation_is_the_steepest():
    # Clean images are zero in the second half of their values, the perturbation lives there alone.
    stretch = torch.diag(torch.tensor([1.0, 1.0, 5.0, 5.0]))
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)).double()
    with torch.no_grad():
        model[1].weight.copy_(stretch)
        model[2].weight.copy_(torch.eye(4))
    x = torch.tensor([[0.5, 0.1, 0.0, 0.0], [0.1, 0.7, 0.0, 0.0]]).double()
    x_adv = x + torch.tensor([0.0, 0.0, 0.06, 0.08]).double()
    traced = trace(model, x, torch.tensor([0, 1]), x_adv=x_adv)

    assert [call.name for call in traced.steepest] == ["1"]
    assert traced.calls[2].values["gain"].tolist() == pytest.approx([5, 5])
    assert traced.calls[0].values["relative"].tolist() == pytest.approx([0.1 / 0.26**0.5, 0.1 / 0.5**0.5])


def test_sign_flips_counted_by_hand():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 3, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1, 0], [0, 1, -1], [1, 0, 0]]))
        model[2].weight.copy_(torch.eye(3))
    x, x_adv = torch.tensor([[0.6, 0.4, 0.5]]).double(), torch.tensor([[0.5, 0.6, 0.5]]).double()
    # Before: 0.2, -0.1, 0.6. After: -0.1, 0.1, 0.5.
    traced = trace(model, x, torch.tensor([2]), x_adv=x_adv)

    assert [call.values["flips"].item() for call in traced.calls[1:]] == pytest.approx([2 / 3, 2 / 3, 2 / 3])


def test_a_layer_that_is_used_twice_has_two_rows():
    model, x, x_adv, y = built(Twice(), 6)
    traced = trace(model, x, y, x_adv=x_adv)

    assert [call.name for call in traced.calls] == ["(input)", "first", "relu", "second", "relu #2", "head"]
    with torch.no_grad():
        hidden = [model.first(points).relu() for points in (x, x_adv)]
        outer = [model.second(each).relu() for each in hidden]
    for call, (a, b) in ((traced.calls[2], hidden), (traced.calls[4], outer)):
        assert torch.allclose(call.values["relative"], (b - a).norm(dim=1) / a.norm(dim=1))


def with_views(inplace: bool) -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 6), nn.Flatten(0, -1), nn.Unflatten(0, (-1, 6)), nn.ReLU(inplace), nn.Linear(6, 3)
    )


@pytest.mark.parametrize(("build", "layers"), [(Twice, None), (with_views, ["0", "2", "3", "4"])])
def test_an_inplace_relu_changes_no_number_of_the_row_before_it(build, layers):
    model, x, x_adv, y = built(build(True), 6)
    other = built(build(False), 6)[0]

    assert same(
        trace(model, x, y, x_adv=x_adv, layers=layers),
        trace(other, x, y, x_adv=x_adv, layers=layers),
    )


@pytest.mark.parametrize("count", [1, 5])
def test_the_numbers_of_an_image_do_not_depend_on_other_images(count):
    model, x, x_adv, y = built(cnn(), 1, 8, 8, count=40)
    model, x, x_adv = model.float(), x.float(), x_adv.float()
    whole = trace(model, x, y, x_adv=x_adv)
    rows = torch.randperm(40, generator=torch.Generator().manual_seed(1))[:count]
    part = trace(model, x[rows], y[rows], x_adv=x_adv[rows])

    assert len(whole.pairs) == 40
    for mine, all_ in zip(part.calls, whole.calls, strict=True):
        for name in MEASURES:
            assert torch.equal(mine.values[name].nan_to_num(-7), all_.values[name][rows].nan_to_num(-7))


def test_no_number_depends_on_the_batch_size():
    chosen = problem("cnn", 1, 8, 8, count=20)
    one, other = (
        trace(chosen.model, chosen.x, chosen.y, attack="pgd:steps=4", eps=0.03, batch_size=size) for size in (3, 64)
    )

    assert one.to_json() == other.to_json()


def test_cka_does_not_depend_on_the_order_of_the_images():
    model, x, x_adv, y = built(cnn(), 1, 8, 8, count=40)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    one, other = trace(model, x, y, x_adv=x_adv), trace(model, x[order], y[order], x_adv=x_adv[order])

    for mine, theirs in zip(one.calls, other.calls, strict=True):
        assert one.cka(mine) == pytest.approx(other.cka(theirs), rel=1e-9)
        assert one.cka(mine) < 1


def test_cka_is_the_same_in_one_sweep_and_in_many():
    model, x, x_adv, y = built(cnn(), 1, 8, 8, count=20)
    classifier = Classifier(model)
    traced = trace(classifier, x, y, x_adv=x_adv)
    widths = {call.key: int(torch.Size(call.shape).numel()) for call in traced.calls}
    with classifier.session(x):
        one, many = (dict(grams(Runner(classifier, 0), traced.pairs, widths, 8, room)) for room in (10**7, 2 * 20 * 77))

    assert list(one) == list(many) == [call.key for call in traced.calls]
    for key in one:
        assert torch.allclose(one[key].clean, many[key].clean, atol=1e-9)
        assert torch.allclose(one[key].perturbed, many[key].perturbed, atol=1e-9)


def test_cka_of_a_group_is_over_its_images_alone():
    chosen = problem("mlp", 6, count=30)
    traced = trace(chosen.model, chosen.x, chosen.y, attack="pgd:steps=5", eps=0.03)
    rows = traced.pairs.broken
    part = trace(chosen.model, chosen.x[rows], chosen.y[rows], x_adv=traced.pairs.x_adv[rows])

    assert rows.sum() >= 4
    for whole, alone in zip(traced.calls, part.calls, strict=True):
        assert traced.cka(whole, "broken") == pytest.approx(part.cka(alone), rel=1e-9)


def test_cka_in_a_trace_is_that_of_all_outputs_at_once():
    model, x, x_adv, y = built(Twice(), 6, count=30)
    traced = trace(model, x, y, x_adv=x_adv)
    with torch.no_grad():
        expected = cka(gram(model.first(x)), gram(model.first(x_adv)))

    assert traced.cka(traced.calls[1]) == pytest.approx(expected, rel=1e-9)


def test_images_are_grouped_by_the_success_of_the_attack():
    chosen = problem("mlp", 6, count=30)
    traced = trace(chosen.model, chosen.x, chosen.y, attack="pgd:steps=5", eps=0.03)
    broken = traced.pairs.broken
    frame = traced.to_frame()

    assert traced.groups == ["broken", "robust"]
    assert torch.equal(broken, chosen.model(traced.pairs.x_adv).argmax(1) != chosen.y)
    assert frame[frame.layer == "1"].n.tolist() == [30, int(broken.sum()), int((~broken).sum())]
    medians = frame[(frame.layer == "1") & (frame.group == "broken")].relative.item()
    assert medians == pytest.approx(np.median(traced.calls[2].values["relative"][broken].numpy()))


def test_clean_errors_are_left_out_and_counted():
    model, x, x_adv, y = built(linear_net(), 6)
    wrong = y.clone()
    wrong[[2, 7]] = (wrong[[2, 7]] + 1) % 4
    traced = trace(model, x, wrong, x_adv=x_adv)

    assert traced.origin.clean_wrong == 2
    assert traced.pairs.number.tolist() == [0, 1, 3, 4, 5, 6, 8, 9, 10, 11]


def test_the_range_of_pixels_changes_nothing_behind_the_first_layer():
    model, x, x_adv, y = built(linear_net(), 6)
    shifted = nn.Sequential(nn.Identity(), copy.deepcopy(model))
    with torch.no_grad():
        first = shifted[1][1]
        first.bias.add_(first.weight.sum(1) / 2)
        first.weight.div_(2)
    one = trace(model, x, y, x_adv=x_adv)
    other = trace(shifted, 2 * x - 1, y, x_adv=2 * x_adv - 1, bounds=(-1, 1))

    assert torch.allclose(one.calls[3].values["relative"], other.calls[4].values["relative"])
    assert torch.allclose(one.calls[0].values["margin"], other.calls[0].values["margin"])


def test_noise_of_the_model_is_not_measured_as_a_perturbation():
    noisy = Function(lambda x: x + 0.1 * torch.randn_like(x))
    model, x, _, y = built(nn.Sequential(nn.Flatten(), noisy, nn.Linear(6, 3)), 6, count=20)
    traced = trace(model, x, y, x_adv=x.clone())

    assert not any(bool(change.any()) for change in values(traced, "relative"))


def test_before_a_detached_layer_there_is_no_attribution():
    cut = Function(lambda x: x.detach())
    model, x, x_adv, y = built(nn.Sequential(nn.Flatten(), nn.Linear(6, 6), cut, nn.Linear(6, 3)), 6)
    traced = trace(model, x, y, x_adv=x_adv)

    defined = [not bool(margin.isnan().all()) for margin in values(traced, "margin")]
    assert defined == [False, False, False, False, True]


def test_before_a_rounding_layer_the_attribution_is_zero():
    rounding = Function(lambda x: (4 * x).round() / 4)
    model, x, x_adv, y = built(nn.Sequential(nn.Flatten(), rounding, nn.Linear(6, 3)), 6)
    traced = trace(model, x, y, x_adv=x_adv)

    before, after = traced.calls[0].values["margin_share"], traced.calls[2].values["margin_share"]
    assert bool((before.nan_to_num(0) == 0).all())
    assert torch.allclose(after[~after.isnan()], torch.ones(int((~after.isnan()).sum()), dtype=torch.float64))


def test_a_layer_that_never_runs_is_listed():
    model, x, x_adv, y = built(Aside(), 6)
    traced = trace(model, x, y, x_adv=x_adv)

    assert traced.unseen == {"unused": "it never ran"}
    with pytest.raises(UserError, match="unused"):
        trace(model, x, y, x_adv=x_adv, layers=["unused"])


def test_layers_are_chosen_by_glob_and_may_hold_others():
    model, x, x_adv, y = built(cnn(), 1, 8, 8)
    traced = trace(model, x, y, x_adv=x_adv, layers=["body", "body.?"])

    assert [call.name for call in traced.calls] == ["(input)", *(f"body.{i}" for i in range(6)), "body"]
    assert torch.equal(traced.calls[6].values["relative"], traced.calls[7].values["relative"])


def test_a_compiled_model_is_traced_as_it_was_before():
    model, x, x_adv, y = built(Twice(), 6)

    plain = trace(model, x, y, x_adv=x_adv)
    compiled = trace(torch.compile(model, backend="eager"), x, y, x_adv=x_adv)

    assert same(compiled, plain)


def test_a_layer_that_returns_a_dataclass_is_followed():
    @dataclass
    class Features:
        values: torch.Tensor

    layers = Function(Features), Function(lambda features: features.values), nn.Flatten(), nn.Linear(6, 3)
    model, x, x_adv, y = built(nn.Sequential(*layers), 6)

    assert [call.name for call in trace(model, x, y, x_adv=x_adv).calls][1] == "0"


def test_a_layer_with_parametrized_weights_is_followed():
    model, x, x_adv, y = built(nn.Sequential(nn.Flatten(), spectral_norm(nn.Linear(6, 3))), 6)

    assert [call.name for call in trace(model, x, y, x_adv=x_adv).calls] == ["(input)", "0", "1"]


def test_outputs_that_are_not_per_image_are_listed_and_skipped():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.total, self.head = Function(torch.sum), nn.Linear(6, 3)

        def forward(self, x):
            self.total(x)
            return self.head(x)

    model, x, x_adv, y = built(Net(), 6)
    traced = trace(model, x, y, x_adv=x_adv)

    assert [call.name for call in traced.calls] == ["(input)", "head"]
    assert list(traced.unseen) == ["total"]


def test_calls_that_return_their_input_are_marked():
    model, x, x_adv, y = built(nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(6, 3)), 1, 2, 3)
    traced = trace(model.train(), x, y, x_adv=x_adv)

    assert [call.moot for call in traced.calls] == [False, True, True, False]
    assert [call.name for call in traced.shown_calls] == ["(input)", "2"]
