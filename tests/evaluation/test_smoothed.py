"""A smoothed classifier in the tables; the true robust accuracy of a linear one lies between its two bounds."""

import math
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import pytest
import torch
from robustkit.reports import write_csv
from torch import Tensor, nn

from robustkit import Classifier, UserError, evaluate, load_run
from robustkit.classifier.smoothing import Smoothing
from robustkit.engine.certify import certify
from robustkit.evidence.rows import AttackRecord, CertificateRecord
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from robustkit.statistics.randomized_smoothing import ABSTAINS, lower_bound
from tests.networks import Noisy
from tests.small import Recorder, csv, data, evidence, linear

SIGMA = 0.2
SMOOTHING = Smoothing(SIGMA, n=200, n0=20)


def halfspace() -> tuple[nn.Module, Tensor]:
    """Two classes on either side of a plane, whose normal is a unit vector."""
    normal = torch.linspace(-1, 1, 12)
    normal /= normal.norm()
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([-normal, normal]))
        network[1].bias.zero_()
    return network.eval(), normal


class Beside(NamedTuple):
    x: Tensor  # [N, 1, 3, 4]
    y: Tensor


def beside(normal: Tensor, distance: Tensor) -> Beside:
    """Images at these signed distances from the plane, far from the bounds of the pixels, and their labels."""
    x = 0.5 + distance[:, None] * normal
    return Beside(x.reshape(-1, 1, 3, 4), (distance > 0).long())


def run(out=None, model=None, **more) -> Run:
    made = Classifier(model or linear(), name="linear", smoothing=more.pop("smoothing", SMOOTHING))
    settings = {"dataset": data(12), "attacks": ["pgd:steps=3"], "norm": "L2", "eps": ["0.1", "0.3"], **more}
    return evaluate(made, out=out, **settings)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory) -> Path:
    """The folder of a run that nothing may change."""
    folder = tmp_path_factory.mktemp("smoothed")
    run(folder)
    return folder


def images(evaluated: Run, attack: str, verdict: str, eps_text: str) -> set[int]:
    rows = evaluated.samples
    return set(rows["sample"][(rows.attack == attack) & (rows.verdict == verdict) & (rows.eps_text == eps_text)])


def test_the_true_robust_accuracy_lies_between_the_bounds_and_both_are_near_it():
    network, normal = halfspace()
    distance = torch.linspace(-0.6, 0.6, 25)
    x, y = beside(normal, distance)
    radii = ["0.1", "0.3"]
    how = Smoothing(SIGMA, n=4000)
    model = Classifier(network, smoothing=how)

    evaluated = evaluate(model, dataset=(x, y), attacks="pgd:steps=10", norm="L2", eps=radii, samples=None)

    for text in radii:
        eps = float(text)
        robust = set((distance.abs() > eps).nonzero().flatten().tolist())
        certified = images(evaluated, "certified", "certified", text)
        left = set(range(len(x))) - images(evaluated, "pgd:steps=10", "broken", text)
        left -= images(evaluated, "pgd:steps=10", "clean-wrong", text)
        assert certified <= robust
        # The smoothed model abstains on images near the plane, which count as wrong for both bounds.
        assert robust <= left | set((distance.abs() < 0.02).nonzero().flatten().tolist())
        # Noise leaves the class as it is with probability Phi(distance / sigma); see test_smoothing for the slack.
        for number, away in enumerate(distance.abs().tolist()):
            votes = round(how.n * NormalDist().cdf(away / SIGMA))
            radius = SIGMA * NormalDist().inv_cdf(max(0.5, lower_bound(votes, how.n, how.alpha)))
            assert number in certified or radius < eps + 0.12 * SIGMA
            # 1000 copies at alpha / 11 take a majority of 56.3 %; 3 standard deviations more, 61 %, come at 0.28 sigma.
            assert number not in left or away > eps - 0.28 * SIGMA


def test_the_rows_stand_in_the_order_of_their_accuracy():
    evaluated = run()

    rows = evaluated.results[evaluated.results.norm == "L2"].groupby("eps_text", sort=False)
    for _, rows_here in rows:
        assert rows_here.role.tolist() == ["attack", "worst-case", "certified"]
        _, worst, certified = rows_here.correct
        assert 0 < certified <= worst
        assert rows_here.n.tolist() == [12] * 3
    small, large = rows.correct.last()
    assert large < small


def test_no_image_is_both_certified_and_broken():
    radii = ["0.1", "0.25", "0.8"]
    evaluated = run(dataset=data(16), eps=radii, attacks=["pgd:steps=5", "square:queries=10"])

    assert len(images(evaluated, "pgd:steps=5", "broken", "0.8")) > 5
    for text in radii:
        certified = images(evaluated, "certified", "certified", text)
        assert not certified & images(evaluated, "pgd:steps=5", "broken", text)
        assert not certified & images(evaluated, "square:queries=10", "broken", text)
    assert len(images(evaluated, "certified", "certified", "0.1")) > 5
    assert not any("CONTRADICTION" in warning for warning in evaluated.manifest["warnings"])


def test_the_certificates_are_those_of_certify_with_the_radii_of_each_norm():
    x, y = data(12)
    evaluated = run(norm=("Linf", "L1", "L2"), eps=["Linf:0.05", "L1:0.2", "L2:0.2"], seed=3)
    proof = certify(linear(), x, sigma=SIGMA, n=200, n0=20, seed=3)

    rows = evaluated.samples[evaluated.samples.attack == "certified"]
    for norm in ("Linf", "L1", "L2"):
        here = rows[rows.norm == norm].sort_values("sample")
        assert here.radius.tolist() == proof.radius_in(norm).tolist()
        assert here.adv_pred.tolist() == proof.prediction.tolist()
        share = evaluated.results[
            (evaluated.results.norm == norm) & (evaluated.results.role == "certified")
        ].accuracy.item()
        assert share == proof.accuracy(y, float(here.eps.iloc[0]), norm)


def test_one_certification_serves_all_radii(tmp_path):
    watch = Recorder()
    evaluated = run(tmp_path, watch=watch, eps=["0.1", "0.2", "0.3", "0.4"])

    assert evaluated.results.forwards[0] == 12 * (200 + 20)
    assert evaluated.results.forwards[evaluated.results.role == "certified"].sum() == 0
    assert len(evidence(tmp_path)["certified"]) == 12
    assert [text for text, _, _ in watch.stages].count("linear clean") == 1


def test_an_image_on_which_the_model_abstains_counts_as_wrong():
    network, normal = halfspace()
    x = beside(normal, torch.tensor([0.0, 0.0, 0.4, -0.4, 0.4])).x

    evaluated = run(model=network, dataset=(x, torch.tensor([0, 1, 1, 0, 0])), samples=None)

    assert evaluated.results.abstained.tolist()[0] == 2
    assert evaluated.results.correct[0] == 2
    rows = evaluated.samples[evaluated.samples.eps_text == "0.1"]
    rows = rows[rows.attack == "certified"]
    assert rows.clean_pred.tolist() == [ABSTAINS, ABSTAINS, 1, 0, 1]
    assert rows.verdict.tolist() == ["clean-wrong", "clean-wrong", "certified", "certified", "clean-wrong"]


def test_a_point_on_which_the_copies_disagree_is_not_broken():
    network, normal = halfspace()
    x, y = beside(normal, torch.full((20,), 0.2))

    # The ball just touches the plane, where either class has a chance of one half.
    evaluated = run(model=network, dataset=(x, y), eps=["0.2"], attacks=["pgd:steps=10"], samples=None)

    rows = evaluated.samples[evaluated.samples.attack == "pgd:steps=10"]
    assert rows.verdict.tolist() == ["robust"] * 20
    assert (rows.adv_pred == ABSTAINS).sum() > 10


def test_a_witness_within_the_certified_radius_is_reported_as_a_contradiction(tmp_path):
    run(tmp_path, eps=["0.2"])
    store = Store(tmp_path)
    certified = {proof.sample: proof for proof in store.rows(CertificateRecord, "linear") if proof.l2 > 0.05}
    number = min(set(certified) & {row.sample for row in store.rows(AttackRecord)})
    with store._connection:
        store._connection.execute(
            "UPDATE attacked SET success = 1, adv_pred = 0, l2 = 0.04 WHERE sample = ?", (number,)
        )
    store.close()

    (warning,) = load_run(tmp_path).manifest["warnings"]

    assert warning.startswith("CONTRADICTION: linear was broken within the certified radius of 1 of 12 images")
    assert f"{number} (at L2 distance 0.04" in warning
    assert "0.001" in warning


def test_the_batch_size_does_not_change_a_byte(tmp_path):
    settings = {"samples": 6, "smoothing": Smoothing(SIGMA, n=50, n0=10)}
    alone, five, together = (csv(run(batch_size=size, **settings), tmp_path) for size in (1, 5, "auto"))

    assert alone == five == together


def test_an_interruption_keeps_the_certificate_of_every_finished_image(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, watch=Recorder(5))

    assert len(evidence(tmp_path)["certified"]) == 6


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (Smoothing(0.3, n=200, n0=20), "smoothing.sigma was 0.2, now 0.3"),
        (Smoothing(SIGMA, n=300, n0=20), "smoothing.n was 200, now 300"),
        (Smoothing(SIGMA, n=200, n0=30), "smoothing.n0 was 20, now 30"),
        (Smoothing(SIGMA, n=200, n0=20, alpha=0.01), "smoothing.alpha was 0.001, now 0.01"),
        (None, "smoothing.sigma was 0.2, now not set"),
    ],
    ids=str,
)
def test_another_smoothing_is_refused_with_what_changed(changed, words, small_run):
    before = evidence(small_run)

    with pytest.raises(UserError, match=words):
        run(small_run, smoothing=changed)
    assert evidence(small_run) == before


def test_smoothed_and_plain_models_share_a_table(tmp_path):
    models = [Classifier(linear(), name="plain"), Classifier(linear(), name="smoothed", smoothing=SMOOTHING)]
    evaluated = evaluate(models, dataset=data(12), attacks="fgsm", norm="L2", eps="0.3", out=tmp_path)

    assert evaluated.results.role.tolist() == ["clean", "attack", "worst-case"] * 2 + ["certified"]
    assert evaluated.results.abstained.isna().tolist() == [True] * 3 + [False] + [True] * 3
    write_csv(load_run(tmp_path), tmp_path)
    assert (tmp_path / "results.csv").read_text().splitlines()[0].endswith(",backwards,abstained")
    assert (tmp_path / "samples.csv").read_text().splitlines()[0].endswith(",backwards,radius")


def test_a_number_as_smooth_is_the_sigma_of_modules_and_refused_for_classifiers():
    evaluated = evaluate(linear(), dataset=data(2), attacks="fgsm", norm="L2", eps="0.3", smooth=0.2)

    how = evaluated.manifest["identity"]["models"][0]["smoothing"]
    assert how == {"sigma": 0.2, "n": 10_000, "n0": 100, "alpha": 0.001}
    assert evaluated.results.model[0] == "sequential-smoothed"
    with pytest.raises(UserError, match="brings its own smoothing"):
        evaluate(Classifier(linear()), dataset=data(2), smooth=0.2)


def test_a_radius_that_no_certificate_can_reach_is_a_warning():
    # All 200 copies alike leave a probability of 0.001 ** (1 / 200) at least.
    most = SIGMA * NormalDist().inv_cdf(0.001 ** (1 / 200))
    evaluated = run(norm=("Linf", "L2"), eps=["Linf:0.1", "L2:0.3"])

    (warning,) = evaluated.manifest["warnings"]
    assert "at Linf 0.1 nothing can be certified" in warning
    assert f"no radius exceeds {most / math.sqrt(64):.3g}" in warning


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"norm": ("L2", "L0"), "eps": ["L2:0.2", "L0:2"]}, "in L0 nothing is"),
        ({"attacks": ["fia:layer=1"]}, "reads a layer"),
        ({"model": Noisy(linear())}, "is randomized"),
    ],
    ids=["L0", "a layer", "randomized"],
)
def test_settings_that_a_smoothed_classifier_cannot_have_are_refused(more, words):
    with pytest.raises(UserError, match=words):
        run(**more)
