"""Learning rate and radius over a training."""

import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.training import setup
from robustkit.defenses.training.schedule import radius_share, rate

from tests.defenses.doubles import Watch
from tests.defenses.nets import SHORT, TRAIN, VAL, net


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("onecycle", [1 / 25, 0.52, 1.0, 0.75, 0.5, 0.0]), ("cosine", [0.0, 0.5, 1.0, 0.75, 0.5, 0.0]),
        ("piecewise", [0.0, 0.5, 1.0, 1.0, 0.1, 0.01]), ("flat", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ],
)  # fmt: skip
def test_the_rate_is_that_computed_by_hand(schedule, expected):
    # Warm-up over the first quarter; then a third and a half of the rest, and its end.
    rates = [rate(schedule, 0.25, share) for share in (0.0, 0.125, 0.25, 0.5, 0.625, 1.0)]

    assert rates == pytest.approx(expected)


def test_the_radius_grows_linearly():
    assert [radius_share(0.5, share) for share in (0, 0.25, 0.5, 0.9)] == [0, 0.5, 1, 1]
    assert radius_share(0.0, 0.0) == 1


@pytest.mark.usefixtures("judged_quickly")
def test_every_group_of_the_optimizer_follows_the_schedule(monkeypatch):
    rates, optimizers = [], []

    def two_groups(weights, recipe):
        optimizers.append(torch.optim.SGD([{"params": weights[:2]}, {"params": weights[2:], "lr": 1.0}], lr=0.5))
        return optimizers[-1]

    watch = Watch(lambda: rates.append([group["lr"] for group in optimizers[0].param_groups]))
    monkeypatch.setattr(setup, "build_optimizer", two_groups)
    finetune(net(), TRAIN, VAL, eps=0.1, recipe=SHORT, watch=watch)

    expected = [SHORT.lr * rate("onecycle", 0.25, step / 10) for step in range(10)]
    assert rates == [[value, value] for value in expected]


@pytest.mark.usefixtures("judged_quickly")
def test_the_history_has_rate_and_radius():
    recipe = SHORT.but(epochs=4, eps_warmup=0.5, select="pgd:steps=1", attack="pgd:steps=1", guard=False)
    history = finetune(net(), TRAIN, VAL, eps=0.1, recipe=recipe).history

    assert list(history["eps"]) == pytest.approx([0.05, 0.1, 0.1, 0.1])
    assert list(history["lr"]) == pytest.approx([0.02 * rate("onecycle", 0.25, step / 20) for step in (4, 9, 14, 19)])
    assert list(history["epoch"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(("eps_warmup", "first_eps"), [(None, 0.15), (0.0, 0.3)])
def test_by_default_the_radius_grows_if_the_start_is_not_robust(eps_warmup, first_eps):
    recipe = SHORT.but(epochs=4, eps_warmup=eps_warmup, select="pgd:steps=3", guard=False)
    history = finetune(net(), TRAIN, VAL, eps=0.3, recipe=recipe).history

    assert list(history["eps"]) == pytest.approx([first_eps, 0.3, 0.3, 0.3])
