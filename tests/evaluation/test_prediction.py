"""The passes of a run, predicted from a pilot: exact where all images cost the same, else within a factor of two."""

import copy
import math
from typing import Any

import pytest
import torch

from robustkit import Smoothing, UserError
from robustkit.evaluation import thinning
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.prediction import Prediction, pilot_of, predicted
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.host.progress import Silent
from robustkit.primitives import ensembles
from tests.networks import Changed, Constant, Noisy
from tests.small import cnn, data, linear


def evaluation(model: Any, count: int = 120, **request: Any) -> Evaluation:
    """Without checks, whose prediction is tested in test_check_costs.py."""
    return resolve(EvaluationRequest(model, **{"dataset": data(count), "eps": "0.05", "checks": "none", **request}))


def both(model: Any, count: int = 120, **request: Any) -> tuple[Prediction, tuple[int, int]]:
    """A prediction, and forwards and backwards of the run."""
    whole = evaluation(model, count, **request)
    table = carry_out(whole, None, Silent()).results
    counted = table[table.role.isin(["clean", "worst-case"])]
    prediction = predicted(whole, whole.classifiers[0], Silent())
    return prediction, (int(counted.forwards.sum()), int(counted.backwards.sum()))


def assert_exact(prediction: Prediction, passes: tuple[int, int]) -> None:
    assert (prediction.forwards, prediction.backwards) == pytest.approx(passes, rel=1e-9)


def assert_within_two(prediction: Prediction, passes: tuple[int, int]) -> None:
    told = prediction.forwards + prediction.backwards
    assert sum(passes) / 2 < told < 2 * sum(passes)


def always(label: int = 3) -> dict[str, Any]:
    """Images that `Constant(3)` classifies correctly, and that no attack breaks."""
    x, _ = data(80)
    return {"dataset": (x, torch.full((80,), label))}


def test_a_fixed_cost_is_predicted_exactly_where_nothing_breaks():
    prediction, passes = both(Constant(3), attacks=["pgd:steps=3,restarts=2", "square:queries=12"], **always())

    assert passes == (80 * (1 + 2 * 4 + 12), 80 * 2 * 3)
    assert_exact(prediction, passes)


def test_at_radius_0_the_prediction_is_exact():
    x, y = data(120)
    right = linear()(x).argmax(1) == y
    given = {"dataset": (x[right], y[right]), "eps": "0"}

    assert_exact(*both(linear(), attacks="pgd:steps=7", **given))


def test_where_everything_breaks_at_the_first_query_the_prediction_is_exact():
    x, _ = data(80)
    y = torch.full((80,), 3)
    # The first query of PGD is a random point, and any point other than the image is in class 4.
    model = Changed(Constant(3), lambda logits: logits)
    images = x.flatten(1).sum(1)

    class Flips(torch.nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            known = (points.flatten(1).sum(1, keepdim=True) - images).abs().amin(1) < 1e-4
            return torch.where(known[:, None], model(points), model(points).roll(1, 1))

    prediction, passes = both(Flips().eval(), dataset=(x, y), attacks="pgd:steps=40")

    assert sum(passes) < 80 * 5
    assert_exact(prediction, passes)


def test_images_that_are_classified_wrongly_cost_one_pass():
    assert_exact(*both(Constant(3), attacks="pgd:steps=7", **always(label=4)))


@pytest.mark.parametrize("attacks", ["brief", "tiny", ["pgd:steps=20", "noise:queries=9"]], ids=str)
def test_several_radii_are_predicted_together(attacks, brief):
    assert_within_two(*both(cnn(), 60, attacks=attacks, eps=["0.02", "0.1"]))


def test_a_broken_image_costs_nothing_at_the_next_radius():
    prediction, _ = both(cnn(), attacks="pgd:steps=20", eps=["0.1", "0.12"])
    _, first, second = prediction.costs

    assert second.images < first.images
    assert (first.threat, second.threat) == ("Linf 0.1", "Linf 0.12")


def test_a_smoothed_model_is_predicted():
    smooth = Smoothing(0.1, n=100)

    assert_within_two(*both(linear(), 24, attacks="pgd:steps=3", norm="L2", smooth=smooth, eot=3))


def test_a_randomized_model_is_predicted():
    assert_within_two(*both(Noisy(linear()), 16, attacks=["pgd:steps=3", "tiny"], eot=2))


def test_transfer_is_predicted():
    assert_within_two(*both(linear(), attacks="pgd:steps=9", eps="0.1", surrogates=[cnn()]))


def test_an_audit_is_predicted(monkeypatch):
    members = ("apgd-ce:steps=10", "apgd-t:steps=10,targets=3", "fab-t:steps=5,targets=3", "square:queries=100")
    monkeypatch.setitem(ensembles.ENSEMBLES, "autoattack", members)

    prediction, passes = both(linear(), attacks="pgd:steps=20", audit=30)
    assert_within_two(prediction, passes)
    assert [each.images for each in prediction.costs if each.attack == "audit/apgd-ce"] == [30]


def test_members_that_cost_much_attack_few_images(monkeypatch):
    members = ("apgd-ce:steps=2", "apgd-t:steps=10,targets=9", "square:queries=60")
    monkeypatch.setattr(thinning, "_PASSES", 1000)
    monkeypatch.setitem(ensembles.ENSEMBLES, "dear", members)
    prediction, passes = both(Constant(3), attacks="dear", **always())

    assert_exact(prediction, passes)
    assert prediction.spent < sum(passes) / 15


def test_a_seed_chooses_a_tenth_of_the_images_but_fifty_if_there_are_enough():
    sizes = {count: len(pilot_of(evaluation(linear(), count)).ids) for count in (1, 7, 90, 300, 700)}
    assert sizes == {1: 1, 7: 4, 90: 45, 300: 50, 700: 70}

    pilots = [set(pilot_of(evaluation(linear(), 300, seed=seed)).ids) for seed in (0, 0, 1)]
    assert pilots[0] == pilots[1] != pilots[2]
    assert math.isclose(len(pilots[0] & pilots[2]), 50 * 50 / 300, abs_tol=8)


def test_the_model_and_the_random_state_are_unchanged():
    model = cnn()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    whole = evaluation(model, attacks="default")
    predicted(whole, whole.classifiers[0], Silent())

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_fails_is_refused():
    whole = evaluation(Changed(linear(), lambda logits: logits * float("nan")), attacks="fgsm")

    with pytest.raises(UserError, match="NaN"):
        predicted(whole, whole.classifiers[0], Silent())


@pytest.mark.parametrize("smoothing", [None, Smoothing(sigma=0.1, n=100, n0=10)], ids=["plain", "smoothed"])
def test_verdicts_on_corrupted_images_are_in_the_total(smoothing):
    """They were left out, so 480 passes were predicted for 9,477."""
    given = {"norm": "L2", "attacks": "noise:queries=2", "smooth": smoothing}
    without = evaluation(linear(), 40, **given)
    whole = evaluation(linear(), 40, **given, corruptions=["contrast", "pixelate"], severities=[1, 2, 3])
    less, more = (predicted(each, each.classifiers[0], Silent()) for each in (without, whole))

    assert more.forwards - less.forwards == 40 * 2 * 3 * (1 if smoothing is None else smoothing.judges)
    assert more.backwards == less.backwards
