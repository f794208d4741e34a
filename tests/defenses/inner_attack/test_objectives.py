"""The losses against numbers computed by hand, and against their gradients in float64."""

import math

import pytest
import torch
from robustkit.defenses.inner_attack.objectives import Branches, build_objective, divergence
from torch import Tensor
from torch.nn import functional as F

from robustkit.errors import UserError

X, X_ADV, Y = torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([0, 1])
# Probabilities of two images, clean and adversarial.
CLEAN = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]]).log()
ADVERSARIAL = torch.tensor([[0.25, 0.25, 0.5], [0.25, 0.5, 0.25]]).log()

KL = (
    0.5 * math.log(2) + 0.25 * math.log(1) + 0.25 * math.log(0.5),
    2 * 0.125 * math.log(0.5) + 0.75 * math.log(1.5),
)


NETWORK = Branches(*[lambda x: ADVERSARIAL if bool(x.any()) else CLEAN] * 2)


def value(text: str, smoothing: float = 0.0) -> float:
    return build_objective(text).batch_loss(NETWORK, X, X_ADV, Y, smoothing).loss.item()


CLEAN_LOSS = -(math.log(0.5) + math.log(0.75)) / 2
BOOSTED = (-math.log(0.25) - math.log(1 - 0.5)) + (-math.log(0.5) - math.log(1 - 0.25))
WEIGHTED = KL[0] * (1 - 0.5) + KL[1] * (1 - 0.75)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clean", CLEAN_LOSS),
        ("at", -(math.log(0.25) + math.log(0.5)) / 2),
        ("trades:6", CLEAN_LOSS + 6 * (KL[0] + KL[1]) / 2),
        ("mart:5", (BOOSTED + 5 * WEIGHTED) / 2),
    ],
)
def test_a_loss_is_that_computed_by_hand(text, expected):
    assert value(text) == pytest.approx(expected)


def test_label_smoothing_is_torchs():
    # The true class has probability 1 - s + s / K.
    log = ADVERSARIAL
    by_hand = -sum((0.9 + 0.1 / 3) * log[i, y] + 0.1 / 3 * (log[i].sum() - log[i, y]) for i, y in enumerate(Y)) / 2

    assert value("at", 0.1) == pytest.approx(by_hand.item())
    assert value("at", 0.1) == pytest.approx(F.cross_entropy(ADVERSARIAL, Y, label_smoothing=0.1).item())


def test_trades_smooths_only_the_clean_term():
    smoothed = F.cross_entropy(CLEAN, Y, label_smoothing=0.1).item()

    assert value("trades:6", 0.1) - value("trades:6") == pytest.approx(smoothed - value("clean"))


def from_the_paper(text: str, clean: Tensor, adversarial: Tensor) -> Tensor:
    """The papers' formulas, as probabilities."""
    p, q = clean.softmax(1), adversarial.softmax(1)
    apart = (p * (p / q).log()).sum(1)
    own = q.gather(1, Y[:, None])[:, 0]
    other = torch.stack([row[torch.arange(3) != label].max() for row, label in zip(q, Y, strict=True)])
    if text == "trades:6":
        return (6 * apart - p.gather(1, Y[:, None])[:, 0].log()).mean()
    return (-own.log() - (1 - other).log() + 5 * apart * (1 - p.gather(1, Y[:, None])[:, 0])).mean()


@pytest.mark.parametrize("text", ["trades:6", "mart:5"])
def test_gradients_flow_through_both_predictions(text):
    generator = torch.Generator().manual_seed(0)
    logits = [torch.randn(2, 3, generator=generator, requires_grad=True) for _ in range(2)]
    loss = build_objective(text).batch_loss(Branches(lambda x: logits[0], lambda x: logits[1]), X, X_ADV, Y, 0.0).loss

    grads, expected = (torch.autograd.grad(each, logits) for each in (loss, from_the_paper(text, *logits)))

    torch.testing.assert_close(grads, expected)


@pytest.mark.parametrize("text", ["clean", "at", "trades:6", "mart:5"])
def test_gradients_of_extreme_logits_are_finite(text):
    # Probabilities underflow to 0: their logarithm and its gradient must not.
    logits = torch.tensor([[-300.0, 300.0, 0.0], [200.0, -200.0, 0.0]], requires_grad=True)
    other = torch.tensor([[300.0, -300.0, 0.0], [-200.0, 200.0, 0.0]], requires_grad=True)

    result = build_objective(text).batch_loss(Branches(lambda x: logits * 1, lambda x: other * 1), X, X_ADV, Y, 0.0)
    result.loss.backward()

    assert result.loss.isfinite()
    assert all(part.grad is None or part.grad.isfinite().all() for part in (logits, other))


def test_the_divergence_is_torchs():
    first, second = (torch.randn(5, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    torchs = F.kl_div(first.log_softmax(1), second.softmax(1), reduction="none").sum(1)

    torch.testing.assert_close(divergence(first, second), torchs)


def test_clean_terms_use_the_clean_branch():
    branches = Branches(lambda x: CLEAN, lambda x: ADVERSARIAL)

    for text in ("trades:6", "mart:5"):
        assert build_objective(text).batch_loss(branches, X, X, Y, 0.0).loss.item() == pytest.approx(value(text))


@pytest.mark.parametrize("text", ["tradez", "trades:-1", "trades:x", "mart:inf", "at:3", "clean:1", ""])
def test_an_unknown_objective_is_refused(text):
    with pytest.raises(UserError):
        build_objective(text)
