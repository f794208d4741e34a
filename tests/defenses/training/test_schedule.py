"""Learning rate and radius over a training."""

import pandas as pd
import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.training import training
from robustkit.defenses.training.schedule import radius_share, rate

from tests.defenses.nets import SHORT, TRAIN, VAL, net


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("onecycle", [1 / 25, 0.52, 1.0, 0.75, 0.5, 0.0]), ("cosine", [0.0, 0.5, 1.0, 0.75, 0.5, 0.0]),
        ("piecewise", [0.0, 0.5, 1.0, 1.0, 0.1, 0.01]), ("flat", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ],
)  # fmt: skip
def test_the_rate_by_hand(schedule, expected):
    # Warm-up over the first quarter; then a third and a half of the rest, and its end.
    found = [rate(schedule, 0.25, share) for share in (0.0, 0.125, 0.25, 0.5, 0.625, 1.0)]

    assert found == pytest.approx(expected)


def test_the_radius_grows_along_a_line():
    assert [radius_share(0.5, share) for share in (0, 0.25, 0.5, 0.9)] == [0, 0.5, 1, 1]
    assert radius_share(0.0, 0.0) == 1


def test_every_group_of_the_optimizer_follows_the_schedule(monkeypatch):
    seen, made = [], []

    def two_groups(weights, recipe):
        made.append(torch.optim.SGD([{"params": weights[:2]}, {"params": weights[2:], "lr": 1.0}], lr=0.5))
        return made[-1]

    class Spy:
        def training(self, text, share):
            seen.append([group["lr"] for group in made[0].param_groups])

        def say(self, text): ...

    monkeypatch.setattr(training, "_optimizer", two_groups)
    finetune(net(), TRAIN, VAL, eps=0.1, recipe=SHORT, watch=Spy())

    expected = [SHORT.lr * rate("onecycle", 0.25, step / 10) for step in range(10)]
    assert seen == [[value, value] for value in expected]


def test_the_history_has_rate_and_radius():
    recipe = SHORT.but(epochs=4, eps_warmup=0.5, select="pgd:steps=1", attack="pgd:steps=1", guard=False)
    history: pd.DataFrame = finetune(net(), TRAIN, VAL, eps=0.1, recipe=recipe).history

    assert list(history["eps"]) == pytest.approx([0.05, 0.1, 0.1, 0.1])
    assert list(history["lr"]) == pytest.approx([0.02 * rate("onecycle", 0.25, step / 20) for step in (4, 9, 14, 19)])
    assert list(history["epoch"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(("given", "epochs_growing"), [(None, 1), (0.0, 0)])
def test_the_radius_grows_where_the_start_is_not_robust(given, epochs_growing):
    recipe = SHORT.but(eps_warmup=given, select="pgd:steps=3", guard=False)
    history = finetune(net(), TRAIN, VAL, eps=0.3, recipe=recipe).history

    assert list(history["eps"]) == pytest.approx([0.3, 0.3])
    first = finetune(net(), TRAIN, VAL, eps=0.3, recipe=recipe.but(epochs=4)).history["eps"][0]
    assert first == pytest.approx(0.15 if epochs_growing else 0.3)
