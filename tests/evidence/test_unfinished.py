"""An unfinished run says of each number which images it has not decided."""

import io
import sqlite3

import pytest
from rich.console import Console
from robustkit.reports import print_table, write_csv

from robustkit import evaluate, load_run
from robustkit.statistics.intervals import proportion
from tests.small import Recorder, data, linear

COUNT = 30


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """An ensemble that was interrupted in its second member."""
    from robustkit.primitives import ensembles

    monkeypatch.setitem(ensembles.ENSEMBLES, "tiny", ("noise:queries=3", "fgsm", "pgd:steps=6"))
    call = {"dataset": data(COUNT), "attacks": ["fgsm", "tiny"], "eps": "0.1", "out": tmp_path}
    whole = evaluate(linear(), **{**call, "out": None})
    with pytest.raises(KeyboardInterrupt):
        evaluate(linear(), **call, watch=Recorder(stop_after=COUNT + 2 * 30))
    # The last member has attacked nothing at all.
    opened = sqlite3.connect(tmp_path / "run.sqlite")
    opened.execute("DELETE FROM attacked WHERE attack = 'tiny/pgd'")
    opened.commit()
    opened.close()
    return load_run(tmp_path), whole


def row(run, attack):
    return run.results[run.results.attack == attack].iloc[0]


@pytest.mark.parametrize("attack", ["tiny", "worst-case"])
def test_images_that_nobody_attacked_are_not_robust(attack, stopped):
    run, whole = stopped
    mine, final = row(run, attack), row(whole, attack)

    assert mine.undecided > 0
    assert mine.ci_low == proportion(mine.correct - mine.undecided, mine.n).low
    assert mine.correct - mine.undecided <= final.correct <= mine.correct
    assert mine.ci_method == "unfinished"
    assert "undecided" not in whole.results


def test_the_tables_of_an_unfinished_run_mark_it(stopped):
    run, _ = stopped
    write_csv(run, run.folder)
    console = Console(file=io.StringIO(), width=200)
    print_table(run, console)
    text = console.file.getvalue()

    assert ",undecided" in (run.folder / "results.csv").read_text().splitlines()[0]
    assert f"<= {100 * row(run, 'worst-case').accuracy:.1f} %" in text
    assert f"Unfinished: {COUNT} of {COUNT}" not in text


def test_an_image_is_robust_against_an_ensemble_only_after_its_last_member(stopped):
    run, whole = stopped
    rows, final = (each.samples[each.samples.attack == "tiny"] for each in (run, whole))

    assert set(rows.verdict) <= {"broken", "clean-wrong"}
    assert "robust" in set(final.verdict)


def test_images_without_a_prediction_are_counted(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        evaluate(linear(), dataset=data(70), attacks="fgsm", eps="0.1", out=tmp_path, watch=Recorder(stop_after=40))
    run = load_run(tmp_path)

    assert row(run, "clean").undecided == 70 - row(run, "clean").n > 0
    assert row(run, "worst-case").undecided >= row(run, "clean").undecided
