"""Gradients through operations that pass none on, against closed forms; values stay as they are."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.nethook import straight_through

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
    "detach": (lambda x: 3 * x.detach(), 3.0),
    "data": (lambda x: 3 * x.data, 3.0),
}


@pytest.mark.parametrize(("step", "slope"), STEPS.values(), ids=STEPS)
def test_a_step_has_the_gradient_of_what_it_rounds(step, slope):
    x = batch()
    before = step(x)
    with straight_through() as stops:
        after = step(x)
    grad = torch.autograd.grad((after * WEIGHTS).sum(), x)[0]

    assert torch.equal(after, before)
    assert torch.allclose(grad, slope * WEIGHTS.expand(3, 4))
    assert len(stops) == 1


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
