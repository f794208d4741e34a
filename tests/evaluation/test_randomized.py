"""A randomized model in the tables: the class it answers most often, and a single one of its answers."""

import io

import pandas as pd
import pytest
import torch
from rich.console import Console
from robustkit.reports import print_table, write_csv, write_report

from robustkit import Classifier, UserError, load_run
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from robustkit.statistics.single_draw import single_draw
from tests.networks import Coin, Noisy
from tests.small import Recorder, csv, data, evaluated, evidence, linear


def noisy() -> Classifier:
    return Classifier(Noisy(linear(), spread=0.2), name="noisy", eot=3)


def run(out=None, models=None, **more) -> Run:
    settings = {"dataset": data(9), "attacks": ["fgsm", "pgd:steps=3"], "norm": "Linf", "eps": ["0.05", "0.1"]}
    return evaluated(models or noisy(), out, checks="none", **settings | more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("noisy")
    run(out)
    return out


def test_both_accuracies_are_in_the_results(folder):
    results = load_run(folder).results
    clean = results[results.role == "clean"].iloc[0]

    assert list(results.columns[-4:]) == ["abstained", "draw_accuracy", "draw_ci_low", "draw_ci_high"]
    assert (results.draw_ci_low <= results.draw_accuracy).all()
    assert (results.draw_accuracy <= results.draw_ci_high).all()
    assert clean.draw_accuracy != clean.accuracy
    assert results[results.eps_text == "0.1"].draw_accuracy.max() < clean.draw_accuracy


def test_each_image_has_its_share_of_right_draws(folder):
    loaded = load_run(folder)
    samples = loaded.samples[(loaded.samples.attack == "fgsm") & (loaded.samples.eps_text == "0.1")]
    row = loaded.results[(loaded.results.attack == "fgsm") & (loaded.results.eps_text == "0.1")].iloc[0]

    assert samples.draw_accuracy.mean() == pytest.approx(row.draw_accuracy)
    assert (samples.draw_accuracy * 16 % 1 == 0).all()
    assert samples[samples.verdict == "broken"].draw_accuracy.mean() < 0.5


def test_the_clean_row_counts_every_draw(folder):
    loaded = load_run(folder)

    assert loaded.results.forwards[0] >= 9 * (32 + 32)
    assert loaded.results.forwards[0] == sum(row[-1] for row in evidence(folder)["drawn"] if row[3] == "clean")


def test_the_terminal_the_page_and_the_files_explain_both_accuracies(folder):
    loaded = load_run(folder)
    console = Console(file=io.StringIO(), width=200)
    print_table(loaded, console)
    write_report([loaded], folder / "report.html")
    write_csv(loaded, folder)

    for text in (console.file.getvalue(), (folder / "report.html").read_text(encoding="utf-8")):
        words = " ".join(text.split())
        assert "one draw: the probability that a single answer is right" in words
        assert "significantly the most frequent one in up to 1,024 fresh draws" in words
        assert "count as wrong: " in words
    assert "draw_accuracy" in pd.read_csv(folder / "results.csv").columns
    assert "draw_accuracy" in pd.read_csv(folder / "samples.csv").columns


def test_the_batch_size_does_not_change_a_byte(folder, tmp_path):
    assert csv(run(batch_size=5), tmp_path) == csv(load_run(folder), tmp_path)


def test_an_interrupted_run_goes_on_to_the_same_bytes(folder, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, watch=Recorder(20))
    resumed = run(tmp_path)

    assert csv(resumed, tmp_path) == csv(load_run(folder), tmp_path)


def test_a_run_that_grows_by_an_attack_keeps_its_verdicts(folder, tmp_path):
    run(tmp_path, attacks="fgsm")
    grown = run(tmp_path)

    assert csv(grown, tmp_path) == csv(load_run(folder), tmp_path)


def test_plain_models_beside_a_randomized_one_have_empty_cells():
    mixed = run(models=[Classifier(linear(), name="plain"), noisy()], attacks="fgsm", eps="0.1")

    assert mixed.results.draw_accuracy.isna().tolist() == [True] * 3 + [False] * 3
    assert mixed.results.abstained.isna().tolist() == [True] * 3 + [False] + [True] * 2


def test_runs_without_a_randomized_model_have_no_further_columns():
    assert run(models=linear(), attacks="fgsm").results.columns[-1] == "backwards"


def test_clean_images_without_a_certain_class_are_counted_and_wrong():
    x = torch.full((6, 1, 2, 2), 0.75)
    evaluated = run(models=Coin(0.5), dataset=(x, torch.zeros(6, dtype=torch.int64)), attacks="fgsm", eps="0.1")

    assert evaluated.results.abstained[0] == 6
    assert evaluated.results.correct.tolist() == [0] * 3


def test_a_model_right_with_55_percent_is_covered_in_93_of_100_samples():
    x, covered = torch.full((120, 1, 2, 2), 0.75), 0
    for seed in range(10):
        with Classifier(Coin(0.55)).session(x, seed) as session:
            draws = session.clean_draws(x, [0] * 120, range(120))
        for first in range(0, 120, 12):
            share = single_draw([point] for point in draws[first : first + 12])
            covered += share.low <= 0.55 <= share.high

    assert covered >= 93


def test_rows_that_were_judged_by_an_older_rule_are_not_mixed_with_new_ones(tmp_path):
    run(tmp_path, attacks="fgsm")
    store = Store(tmp_path)
    store.set_manifest(randomized={})
    store.close()

    with pytest.raises(UserError, match=r"judges randomized models in another way.*give another --out"):
        run(tmp_path)
