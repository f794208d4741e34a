"""Gradients through operations that pass none on, against closed forms; values stay as they are."""

import copy
import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

from robustkit.nethook import straight_through
from robustkit.nethook.op_sites import GradientStop

TABLE = torch.linspace(-1, 1, 20).reshape(5, 4).sin() * torch.tensor([1.0, -2.0, 3.0, 0.5])
WEIGHTS = torch.linspace(0.3, 2, 4)


def batch(rows: int = 3) -> Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()


def distances(x: Tensor) -> Tensor:
    return torch.cdist(x, TABLE)


def soft_lookup(x: Tensor, scores: Tensor) -> Tensor:
    """The mean of the table, weighted by a softmax of the scores at the temperature of the two that come next."""
    best, second, third = scores.detach().topk(3).values.unbind(1)
    width = ((best - second) + (best - third)) / 2
    return torch.softmax(scores / width[:, None], 1) @ TABLE


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.autograd.grad((function(x) * WEIGHTS[: function(x).shape[-1]]).sum(), x)[0]


def passed(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor, list[GradientStop]]:
    """The value of a function straight through, its gradient, and what was passed."""
    with straight_through() as stops:
        value = function(x)
    return value, torch.autograd.grad((value * WEIGHTS).sum(), x)[0], stops


def scattered_in_place(x: Tensor) -> Tensor:
    codes = torch.zeros(len(x), 5)
    codes.scatter_(1, distances(x).argmin(1, keepdim=True), 1)
    return codes @ TABLE


def without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        nearest = distances(x).argmin(1)
    return TABLE[nearest]


LOOKUPS: dict[str, Callable[[Tensor], Tensor]] = {
    "an index": lambda x: TABLE[distances(x).argmin(1)],
    "an index of columns": lambda x: TABLE.T[:, distances(x).argmin(1)].T,
    "an index beside another": lambda x: TABLE.expand(3, 5, 4)[torch.arange(3), distances(x).argmin(1)],
    "the index of a minimum": lambda x: TABLE[distances(x).min(1).indices],
    "the first of topk": lambda x: TABLE[distances(x).topk(2, largest=False).indices[:, 0]],
    "the first of argsort": lambda x: TABLE[distances(x).argsort(1)[:, :1].squeeze(1)],
    "an argmax of negative distances": lambda x: TABLE[(-distances(x)).argmax(dim=-1)],
    "an embedding": lambda x: F.embedding(distances(x).argmin(1).view(3, 1), TABLE).squeeze(1),
    "index_select": lambda x: TABLE.index_select(0, distances(x).argmin(1)),
    "gather": lambda x: TABLE.expand(3, 5, 4).gather(1, distances(x).argmin(1)[:, None, None].expand(3, 1, 4))[:, 0],
    "take_along_dim": lambda x: torch.take_along_dim(
        TABLE.T.expand(3, 4, 5), distances(x).argmin(1).view(3, 1, 1).expand(3, 4, 1), 2
    )[..., 0],
    "one_hot": lambda x: F.one_hot(distances(x).argmin(1), 5).float() @ TABLE,
    "one_hot with a class more": lambda x: F.one_hot(distances(x).argmin(1), 6).to(x)[:, :5] @ TABLE,
    "a product with one_hot": lambda x: (F.one_hot(distances(x).argmin(1), 5)[..., None] * TABLE).sum(1),
    "a sum of one_hot": lambda x: sum(F.one_hot(distances(x).argmin(1), 5) for _ in range(2)).float() @ TABLE / 2,
    "stacked one_hot": lambda x: torch.stack([F.one_hot(distances(x).argmin(1), 5)] * 2).sum(0).float() @ TABLE / 2,
    "the labels of entries": lambda x: (
        F.one_hot(torch.tensor([0, 2, 1, 4, 3])[distances(x).argmin(1)], 5).float() @ TABLE[[0, 2, 1, 4, 3]]
    ),
    "scatter": lambda x: torch.zeros(3, 5).scatter(1, distances(x).argmin(1, keepdim=True), 1.0) @ TABLE,
    "gather by names": lambda x: torch.gather(
        input=TABLE.expand(3, 5, 4), dim=1, index=distances(x).argmin(1)[:, None, None].expand(3, 1, 4)
    )[:, 0],
    "a choice by names": lambda x: torch.index_select(
        input=TABLE, dim=0, index=torch.argmin(input=distances(x), dim=1)
    ),
    "a table first under no_grad": lambda x: TABLE[torch.no_grad()(lambda: torch.cdist(TABLE, x).argmin(0))()],
    "scatter in place": scattered_in_place,
    "a choice under no_grad": without_gradients,
}


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
def test_a_lookup_has_the_gradient_of_a_softmax_over_the_scores(lookup):
    x = batch()
    before = lookup(x)
    with straight_through() as stops:
        after = lookup(x)
        grad = gradient(lookup, x)

    assert torch.equal(after, before)
    assert torch.allclose(grad, gradient(lambda x: soft_lookup(x, -distances(x)), x), atol=1e-5)
    assert stops


def test_the_gradient_of_the_entries_themselves_stays():
    def mixed(x: Tensor) -> Tensor:
        entries = x.unsqueeze(1) * torch.arange(1.0, 6)[None, :, None]
        return entries[torch.arange(3), distances(x.detach()).argmin(1)]

    x = batch()
    with straight_through():
        grad = gradient(mixed, x)
    entries = (x.unsqueeze(1) * torch.arange(1.0, 6)[None, :, None]).detach()
    chosen = distances(x).argmin(1)
    best, second, third = (-distances(x)).topk(3).values.detach().unbind(1)
    width = ((best - second) + (best - third)) / 2

    def expected(x: Tensor) -> Tensor:
        weights = torch.softmax(-distances(x) / width[:, None], 1)
        return x * (chosen + 1.0)[:, None] + (weights[..., None] * entries).sum(1)

    assert torch.allclose(grad, gradient(expected, x), atol=1e-5)


def test_what_counts_are_multiplied_with_keeps_its_gradient():
    def weighted(x: Tensor) -> Tensor:
        return F.one_hot(distances(x.detach()).argmin(1), 5)[:, :4] * x

    x = batch()
    with straight_through():
        grad = gradient(weighted, x)
    best, second, third = (-distances(x)).topk(3).values.detach().unbind(1)
    width = ((best - second) + (best - third)) / 2
    chosen, fixed = F.one_hot(distances(x).argmin(1), 5)[:, :4], x.detach()

    def expected(x: Tensor) -> Tensor:
        return chosen * x + torch.softmax(-distances(x) / width[:, None], 1)[:, :4] * fixed

    assert torch.allclose(grad, gradient(expected, x), atol=1e-5)


COMPARED: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "above": (lambda x: (x > 0.1).float(), 1.0),
    "below": (lambda x: x.lt(0.1).to(x), -1.0),
    "doubled": (lambda x: torch.gt(x, 0.1).double(), 1.0),
    "not below": (lambda x: (~(x < 0.1)).float(), 1.0),
    "one of two numbers": (lambda x: torch.where(x > 0.1, 3.0, 1.0), 2.0),
    "counted": (lambda x: torch.stack([x > 0.1, x > 0.1], 1).sum(1).float(), 2.0),
    "whole numbers": (lambda x: (x >= 0.1).long().float(), 1.0),
}


@pytest.mark.parametrize(("function", "factor"), COMPARED.values(), ids=COMPARED)
def test_a_comparison_has_the_gradient_of_a_sigmoid(function, factor):
    x = batch()
    before = function(x)
    after, grad, stops = passed(function, x)
    lead = x.detach() - 0.1
    likely = torch.sigmoid(lead / lead.abs().mean(1, keepdim=True))

    assert torch.equal(after, before)
    expected = factor * WEIGHTS * likely * (1 - likely) / lead.abs().mean(1, keepdim=True)
    assert torch.allclose(grad, expected, atol=1e-6)
    assert len(stops) == 1


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.where(x > 0, x, 0.1 * x), lambda x: x.masked_fill(x < 0, 0), lambda x: x[x > 0]],
    ids=["where", "masked_fill", "index"],
)
def test_a_comparison_that_chooses_between_values_keeps_their_gradient(function):
    x = batch()
    usual = torch.autograd.grad(function(x).sum(), x)[0]
    with straight_through() as stops:
        grad = torch.autograd.grad(function(x).sum(), x)[0]

    assert torch.equal(grad, usual)
    assert stops == []


def test_equal_scores_give_finite_gradients():
    def lookup(x: Tensor) -> Tensor:
        same = x.sum(1, keepdim=True).expand(-1, 5)
        return TABLE[same.argmax(1)]

    with straight_through():
        grad = gradient(lookup, batch())

    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scale_of_the_scores_does_not_matter(scale):
    x = batch()
    with straight_through():
        grads = [gradient(lambda x, size=size: TABLE[(size * distances(x)).argmin(1)], x) for size in (1.0, scale)]

    assert torch.allclose(*grads, rtol=1e-3, atol=1e-6)


def test_a_choice_among_all_images_keeps_its_gradient():
    def one_for_all(x: Tensor) -> Tensor:
        return TABLE.flatten()[distances(x).argmin() % 4] * x

    x = batch()
    usual = gradient(one_for_all, x)
    with straight_through() as stops:
        assert torch.equal(gradient(one_for_all, x), usual)
    assert not stops


STEPS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "round": (lambda x: (x * 4).round() / 4, 1.0),
    "round in place": (lambda x: (x * 4).round_() / 4, 1.0),
    "floor": (torch.floor, 1.0),
    "sign": (torch.sign, 1.0),
    "a quotient without remainder": (lambda x: x.floor_divide(0.5), 2.0),
    "round by name": (lambda x: torch.round(input=x), 1.0),
    "a quotient by name": (lambda x: x.floor_divide(other=0.5), 2.0),
    "a quotient as an operator": (lambda x: x // 0.5, 2.0),
    "a quotient that is rounded": (lambda x: torch.div(x, 0.5, rounding_mode="trunc"), 2.0),
    "a cast to whole numbers": (lambda x: (x * 4).to(torch.uint8).float() / 4, 1.0),
    "a cast that is divided": (lambda x: (x * 4).int() / 4, 1.0),
    "a cast by its method": (lambda x: (x * 4).long().to(x) / 4, 1.0),
    "a cast and a quotient": (lambda x: ((x * 255).to(torch.uint8) // 64 * 64).float() / 255, 1.0),
    "a cast and a quotient that is rounded": (
        lambda x: torch.div((x * 9).int(), 3, rounding_mode="floor").float(),
        3.0,
    ),
    "a value without its remainder": (lambda x: x - torch.remainder(x, 0.3), 1.0),
    "an operator's remainder": (lambda x: 2 * (x - x % 0.3), 2.0),
    "a value without its fraction": (lambda x: x - x.frac(), 1.0),
    "a remainder in place": (lambda x: (y := 2 * x).sub_(y.fmod(0.3)), 2.0),
    "detach": (lambda x: 3 * x.detach(), 3.0),
    "a stack under no_grad": (torch.no_grad()(lambda x: torch.stack([x, x]).sum(0)), 2.0),
    "data": (lambda x: 3 * x.data, 3.0),
}


@pytest.mark.parametrize(("step", "slope"), STEPS.values(), ids=STEPS)
def test_a_step_has_the_gradient_of_what_it_rounds(step, slope):
    x = batch()
    before = step(x)
    after, grad, stops = passed(step, x)

    assert torch.equal(after, before)
    assert torch.allclose(grad, slope * WEIGHTS.expand(3, 4))
    assert len(stops) == 1


def test_a_remainder_of_something_else_keeps_its_gradient():
    """`x - x % q` is a step; a remainder alone, or taken from another value, is not."""
    for function in (lambda x: x % 0.3, lambda x: x - 3 * (x % 0.3), lambda x: 2 * x - x % 0.3):
        x = batch()
        usual = gradient(function, x)
        _, grad, stops = passed(function, x)

        assert torch.equal(grad, usual)
        assert not stops


def test_the_line_that_stops_the_gradient_is_named():
    with straight_through() as stops:
        batch().round()
        batch().round()  # another line

    assert [stop.op for stop in stops] == ["round", "round"]
    assert all(stop.text.startswith("round (test_straight_through.py, line ") for stop in stops)
    assert stops[0].place.line + 1 == stops[1].place.line


def test_ordinary_networks_keep_their_gradients_and_stop_none():
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)).eval()
    x = batch()
    usual = gradient(network, x)
    with straight_through() as stops:
        grad = gradient(network, x)

    assert torch.equal(grad, usual)
    assert stops == []


def test_without_gradients_nothing_changes():
    with torch.no_grad(), straight_through() as stops:
        assert torch.equal(LOOKUPS["an index"](batch()), LOOKUPS["an index"](batch()))
    assert stops == []


@torch.no_grad()
def written_by_out(x: Tensor) -> Tensor:
    return torch.mul(x, 2, out=torch.empty(3, 4))


@torch.no_grad()
def written_parts(x: Tensor) -> Tensor:
    doubled = x * 1
    for row in doubled.unbind(0):
        row.mul_(2)
    return doubled


@torch.no_grad()
def a_leaf_written(x: Tensor) -> Tensor:
    return x.mul_(2).round_()


@torch.no_grad()
def clipped_weights(x: Tensor) -> Tensor:
    layer = nn.Linear(4, 4)
    layer.weight.fill_(3).clamp_(-1, 1)
    layer.bias.data.zero_().add_(1)
    return layer(x)


def optimised_inside(x: Tensor, method: type[torch.optim.Optimizer] = torch.optim.SGD) -> Tensor:
    start = (x * 2).detach().clone().requires_grad_()
    optimizer = method([start], 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        start.sin().sum().backward()
        optimizer.step()
    return start


def restarted(x: Tensor) -> Tensor:
    start = x.exp().detach().requires_grad_()
    start.sin().sum().backward()
    return x.exp() - start.grad


def set_flags(x: Tensor) -> Tensor:
    fixed = (x * 2).detach()
    fixed.requires_grad = False
    return fixed.requires_grad_(False) * (3 if fixed.requires_grad else 2) * (3 if fixed.is_leaf else 2)


def written_and_read(x: Tensor) -> Tensor:
    doubled = x * 2
    with torch.no_grad():
        doubled.mul_(2)
    return x * (3 if doubled.requires_grad else 2)


def votes_written_in_parts(x: Tensor) -> Tensor:
    votes = F.one_hot(distances(x).argmin(1), 5).to(x) @ TABLE
    for row in votes.unbind(0):
        row.mul_(2)
    return votes


def by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.from_dlpack((x * 2).detach()).copy()) + float(x.detach().sum())


FORWARDS: dict[str, Callable[[Tensor], Tensor]] = {
    "out": written_by_out,
    "parts written under no_grad": written_parts,
    "a leaf written under no_grad": a_leaf_written,
    "a leaf written through data": lambda x: x.data.clamp_(-1, 1) * x,
    "a leaf written through detach": lambda x: x.detach().mul_(2) + x,
    "clipped weights": clipped_weights,
    "optimised inside": optimised_inside,
    "a gradient of a restart": restarted,
    "flags": set_flags,
    "flags after a write under no_grad": written_and_read,
    "numpy": by_numpy,
    "votes in parts": votes_written_in_parts,
    "a deep copy": lambda x: copy.deepcopy(x.detach() * 2),
    "a gradient in functorch": torch.func.grad(lambda x: (x.round() * x + x.detach() * x).sum()),
    "weights normalised by their spectrum": lambda x: spectral_norm(nn.Linear(4, 4))(x * 1),
}


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
@pytest.mark.parametrize("leaf", [True, False])
def test_what_works_without_gradients_works_and_has_the_same_values(forward, leaf):
    def outputs() -> list[Tensor]:
        torch.manual_seed(0)
        source = batch()
        x = source if leaf else source * 1
        return [forward(x).detach(), x.detach(), torch.rand(1), torch.tensor(source.grad is None)]

    usual = outputs()
    with straight_through():
        inside = outputs()

    assert all(torch.equal(one, other) for one, other in zip(inside, usual, strict=True))


@pytest.mark.parametrize("method", [torch.optim.SGD, torch.optim.Adam])
def test_a_start_that_is_optimised_passes_its_gradient_on(method):
    x = batch()
    with straight_through():
        output = optimised_inside(x, method)

    assert torch.equal(torch.autograd.grad(output.sum(), x)[0], torch.full((3, 4), 2.0))


def changed_in_place(x: Tensor) -> Tensor:
    index = distances(x).argmin(1)
    index[0] = 2
    return TABLE[index]


@pytest.mark.parametrize(
    "lookup", [changed_in_place, lambda x: TABLE[(distances(x).argmin(1) * 2) % 5]], ids=["written into", "computed"]
)
def test_an_index_that_was_changed_is_no_choice(lookup):
    with straight_through() as stops:
        assert not lookup(batch()).requires_grad
    assert not stops


def masked(scores: Tensor, value: float) -> Tensor:
    return scores.masked_fill(torch.tensor([True, False, True, False, True]), value)


UNUSUAL: dict[str, Callable[[Tensor], Tensor]] = {
    "masked scores": lambda x: TABLE[masked(-distances(x), -torch.inf).argmax(1)],
    "masked scores, gathered": lambda x: masked(-distances(x), -torch.inf).max(1).values,
    "only infinite scores": lambda x: TABLE[(distances(x) * 0 - torch.inf).argmax(1)],
    "scores without a value": lambda x: TABLE[masked(distances(x), torch.nan).argmax(1)],
    "an infinite choice": lambda x: TABLE[masked(distances(x), torch.inf).argmax(1)],
    "the largest numbers": lambda x: TABLE[(distances(x) * 3e37).argmax(1)],
    "the least numbers": lambda x: TABLE[(distances(x) * 1e-41).argmax(1)],
    "an infinite entry": lambda x: torch.cat([TABLE, TABLE[:1] / 0])[F.pad(distances(x), (0, 1), value=99.0).argmin(1)],
    "the root of a rounded zero": lambda x: (x * 0.01).round().abs().sqrt(),
    "the entropy of votes": lambda x: torch.special.entr(F.one_hot(distances(x).argmin(1), 5).float()),
    "half precision": lambda x: TABLE[(distances(x).half() * 2e4).argmax(1)],
}


@pytest.mark.parametrize("function", UNUSUAL.values(), ids=UNUSUAL)
def test_no_gradient_is_infinite_or_missing_that_was_finite(function):
    x = batch()
    with straight_through():
        output = function(x)

    assert bool(torch.autograd.grad(output.sum(), x)[0].isfinite().all())


def test_masked_scores_are_never_chosen():
    def lookup(x: Tensor) -> Tensor:
        return TABLE[masked(-distances(x), -torch.inf).argmax(1)]

    def without(x: Tensor) -> Tensor:
        return TABLE[[1, 3]][(-distances(x))[:, [1, 3]].argmax(1)]

    x = batch()
    with straight_through():
        assert torch.allclose(gradient(lookup, x), gradient(without, x), atol=1e-6)


def test_what_is_written_into_a_table_afterwards_does_not_end_the_backward_pass():
    bank = TABLE.clone()
    x = batch()
    with straight_through():
        index = distances(x).argmin(1)
        output = bank[index]
        bank[0] = 0.0
        index.zero_()

    assert torch.autograd.grad(output.sum(), x)[0].any()


def test_an_operation_without_a_derivative_keeps_its_gradient():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    mixed = torch.no_grad()(lambda x: torch.histc(x) + layer(x[None]).sum())
    x = batch()
    with straight_through():
        output = x.sum() + mixed(x).sum()

    assert torch.autograd.grad(output, x)[0].isfinite().all()


def test_a_checkpoint_runs_again_without_the_context():
    x = batch()
    with straight_through():
        output = checkpoint(lambda x: x.round() + x + TABLE[distances(x).argmin(1)], x, use_reentrant=False)

    assert torch.equal(torch.autograd.grad(output.sum(), x)[0], torch.ones(3, 4))


def test_an_autograd_function_is_no_stop():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2 + x.detach()

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad

    with straight_through() as stops:
        Doubled.apply(batch())
    assert not stops


def test_choices_and_what_is_kept_for_a_backward_pass_are_freed():
    gc.disable()
    x = batch()
    with straight_through():
        index = distances(x).argmin(1)
        mask = torch.no_grad()(torch.sigmoid)(x)
        output = TABLE[index] * mask
    refs = [weakref.ref(each) for each in (index, mask, output)]
    del index, mask, output
    alive = [each() for each in refs]
    gc.enable()

    assert alive == [None, None, None]


def test_what_code_under_no_grad_writes_over_does_not_end_the_backward_pass():
    @torch.no_grad()
    def soft_mask(x: Tensor) -> Tensor:
        mask = x.sigmoid()
        kept = mask * mask
        mask.detach().mul_(0)
        return kept

    x = batch()
    with straight_through():
        output = soft_mask(x)
    s = torch.sigmoid(x)

    assert torch.allclose(torch.autograd.grad(output.sum(), x)[0], 2 * s * s * (1 - s))
