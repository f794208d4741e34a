"""Runs that look for the distance of the nearest error."""

import math

import numpy as np
import pytest

from robustkit import evaluate, load_run
from robustkit.classifier.oracle import Plain
from robustkit.errors import UserError
from tests.small import cnn, data, evaluated, linear


@pytest.fixture(scope="module")
def run():
    attacks, eps = ["fab:steps=20", "fab-t:steps=20,targets=3"], ["L2:minimum", "L2:0.5"]
    return evaluate(linear(), dataset=data(24), attacks=attacks, eps=eps, samples=None)


def at(run, eps_text):
    rows = run.samples[run.samples.eps_text == eps_text]
    return {name: part.set_index("sample") for name, part in rows.groupby("attack")}


def test_every_image_is_attacked_to_the_end_also_those_broken_at_a_radius(run):
    for name, rows in at(run, "minimum").items():
        attacked = rows[rows.verdict != "clean-wrong"]
        assert (attacked.verdict == "broken").all(), name
        assert (attacked.forwards >= 20).all(), name


def test_the_nearest_error_decides_what_breaks_at_a_radius(run):
    for name, rows in at(run, "minimum").items():
        within = rows.l2.astype(float) <= 0.5
        broken = at(run, "0.5")[name].verdict == "broken"
        attacked = rows.verdict != "clean-wrong"

        assert (within == broken)[attacked].all(), name


def test_the_median_is_that_of_the_rows_per_image(run):
    results = run.results[run.results.eps_text == "minimum"].set_index("attack")
    nearest = np.full(24, math.inf)
    for name, rows in at(run, "minimum").items():
        distance = rows.l2.astype(float)[rows.verdict == "broken"]
        assert results.median_distance[name] == pytest.approx(distance.median())
        assert results.distance_low[name] < results.median_distance[name] < results.distance_high[name]
        nearest[distance.index] = np.minimum(nearest[distance.index], distance)

    assert results.median_distance["worst-case"] == pytest.approx(np.median(nearest[np.isfinite(nearest)]))


def test_the_curve_begins_at_clean_accuracy_and_falls_to_zero(run):
    curve = run.curve().set_index("attack").loc["worst-case"]
    clean = run.results[run.results.role == "clean"].iloc[0]

    assert curve.correct.iloc[0] == clean.correct
    assert (curve.correct.diff().dropna() <= 0).all()
    assert curve.correct.iloc[-1] == 0
    assert (
        run.curve([0.5]).set_index("attack").correct["fab:steps=20"]
        == (at(run, "0.5")["fab:steps=20"].verdict == "robust").sum()
    )


def test_a_run_without_distances_has_no_curve():
    plain = evaluate(linear(), dataset=data(10), attacks="fgsm", eps=["0.05"], samples=None)

    with pytest.raises(UserError, match="no distances"):
        plain.curve()


def test_distances_are_added_to_a_run_and_change_none_of_its_rows(tmp_path):
    def again(eps):
        return evaluated(cnn(), tmp_path, dataset=data(12), attacks="fab-t:steps=6,targets=2", eps=eps, samples=None)

    before = again(["L2:0.3"]).samples
    after = again(["L2:0.3", "L2:minimum"]).samples

    assert after[after.eps_text == "0.3"].equals(before)
    assert (after.eps_text == "minimum").sum() == 12


def test_ensembles_are_refused_in_one_line():
    for attacks in ("default", "autoattack"):
        with pytest.raises(UserError, match="needs a radius in place of 'minimum'"):
            evaluate(linear(), dataset=data(4), attacks=attacks, eps=["L2:minimum"])


def test_an_attack_that_needs_a_radius_finds_distances_by_bisection_and_says_so(tmp_path):
    found = evaluate(linear(), dataset=data(12), attacks=["pgd:steps=5,radii=6", "fab:steps=20"], eps=["L2:minimum"],
                     samples=None, out=tmp_path)  # fmt: skip
    rows = {name: part.set_index("sample") for name, part in found.samples.groupby("attack")}
    attacked = rows["pgd:steps=5,radii=6"].query("verdict == 'broken'")

    assert (attacked.l2.astype(float) > 0.9 * rows["fab:steps=20"].l2[attacked.index].astype(float)).all()
    assert (attacked.forwards > 5).all()
    assert found.manifest["bisected"] == {"pgd:steps=5,radii=6": 6}
    assert "by bisection: pgd:steps=5,radii=6" in str(found)
    assert "by bisection: pgd:steps=5,radii=6" in (tmp_path / "report.html").read_text()


def test_an_interrupted_bisection_goes_on_to_the_same_rows(tmp_path, monkeypatch):
    def run(folder):
        return evaluated(
            cnn(), tmp_path / folder, dataset=data(8), attacks="pgd:steps=3,radii=5", eps=["L2:minimum"], samples=None,
            batch_size=2,
        )  # fmt: skip

    asked, most, query = [], [float("inf")], Plain.query

    def interrupted(self, attack, state):
        asked.append(len(state))
        if len(asked) == most[0]:
            raise KeyboardInterrupt
        return query(self, attack, state)

    monkeypatch.setattr(Plain, "query", interrupted)
    whole = run("whole").samples
    most[0] = len(asked) + int(0.85 * len(asked))
    with pytest.raises(KeyboardInterrupt):
        run("parts")
    done = int((load_run(tmp_path / "parts").samples.verdict == "broken").sum())
    again = run("parts").samples

    assert 0 < done < len(whole)
    assert again.equals(whole)


def test_the_page_and_the_table_show_distances(run, tmp_path):
    run.write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    only = evaluate(linear(), dataset=data(8), attacks="fab:steps=5", eps=["L2:minimum"], samples=None)
    only.write(tmp_path / "only")

    assert "Distance of the nearest adversarial example" in page
    assert "L2 minimum" in str(run)
    assert "Infinity" not in page  # JSON has no such word
    assert "inf" not in str(only).replace("information", "")
    assert "Distance of the nearest adversarial example" in (tmp_path / "only" / "report.html").read_text()


@pytest.mark.parametrize("radii", [0.1, "0.1", ["a"], [], [math.nan], [-1.0], [[0.1]]], ids=str)
def test_a_curve_needs_radii(radii, run):
    with pytest.raises(UserError, match="radii of a curve"):
        run.curve(radii)


def test_the_minimum_is_meant_for_every_norm():
    run = evaluate(linear(), dataset=data(6), attacks="fmn:steps=5", norm=["L2", "Linf"], eps="minimum")

    assert run.manifest["identity"]["threats"] == [["L2", "minimum"], ["Linf", "minimum"]]


def test_an_audit_at_the_minimum_is_refused_as_an_audit():
    with pytest.raises(UserError, match="An audit needs a radius"):
        evaluate(linear(), dataset=data(6), attacks="fmn:steps=5", norm="L2", eps="minimum", audit=2)
