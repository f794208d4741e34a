"""Runs side by side: the same model gets one worst case over all of its attacks, other pixels another table."""

import io
import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console
from robustkit.reports import print_tables, write_report
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.confusion import confusion_tables
from robustkit.reports.evaluation.samples import class_rows

from robustkit import Classifier, evaluate, load_run
from robustkit.evidence.rows import FailedRecord
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from robustkit.statistics.confidence_sequence import sequence
from robustkit.statistics.intervals import proportion
from robustkit.statistics.medians import median
from tests.networks import Noisy
from tests.small import Recorder, data, linear

COUNT = 40


def run_of(folder: Path, attacks: str, *, model=None, shift: float = 0, eps=("0.05", "0.1"), fold=True, **more) -> Run:
    x, y = data(COUNT)
    network = Classifier(linear() if model is None else model, name="m", fold=fold)
    usual = {"dataset": ((x + shift).clamp(0, 1), y), "attacks": attacks, "eps": eps, "out": folder}
    return evaluate(network, **usual | more)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[Run]:
    """Two attacks of which neither breaks all that the other breaks; searched in different ways."""
    place = tmp_path_factory.mktemp("runs")
    return [run_of(place / "a", "fgsm"), run_of(place / "b", "noise:queries=3", fold=False, seed=1, eps="0.1")]


def broken(run: Run, eps: str) -> set[int]:
    rows = run.samples[(run.samples.verdict == "broken") & (run.samples.eps_text == eps)]
    return set(rows["sample"])


def worst(board, eps: str):
    return next(row for row in board.rows if row.role == "worst-case" and row.threat.eps_text == eps)


def test_one_model_in_two_runs_has_one_worst_case_over_both(two):
    (board,) = boards(two)
    clean = board.clean("m").correct

    assert board.models == ["m"]
    assert board.attacks == ["fgsm", "noise:queries=3"]
    assert worst(board, "0.1").correct == clean - len(broken(two[0], "0.1") | broken(two[1], "0.1"))
    assert worst(board, "0.05").correct == clean - len(broken(two[0], "0.05"))


def test_the_joint_worst_case_is_no_higher_than_that_of_a_run_and_falls_with_the_radius(two, tmp_path):
    (board,) = boards([run_of(tmp_path / "c", "pgd:steps=6", eps="0.05"), two[1]])

    assert worst(board, "0.1").correct <= worst(board, "0.05").correct


def test_an_attack_in_both_runs_is_told_apart(two, tmp_path):
    (board,) = boards([*two, run_of(tmp_path / "c", "fgsm", seed=3)])

    assert board.attacks == ["fgsm (a)", "noise:queries=3", "fgsm (c)"]


def test_terminal_and_page_show_the_joint_worst_case(two, tmp_path):
    console = Console(file=io.StringIO(), width=200)
    print_tables(two, console)
    write_report(two, tmp_path / "both.html")
    (board,) = boards(two)
    cell = worst(board, "0.1")

    for text in (console.file.getvalue(), (tmp_path / "both.html").read_text(encoding="utf-8")):
        assert f"{cell.correct}/{cell.n}" in text
        assert "the runs a and b attacked the same model" in text


def test_another_model_of_the_same_name_is_not_joined(two, tmp_path):
    other = linear()
    with torch.no_grad():
        other[-1].bias[3] += 1

    (board,) = boards([*two, run_of(tmp_path / "c", "fgsm", model=other)])

    assert board.models == ["m (a)", "m (b)", "m (c)"]


def test_runs_on_other_pixels_do_not_share_a_table(two, tmp_path):
    other = run_of(tmp_path / "c", "fgsm", shift=0.01)
    assert set(other.samples["sample"]) == set(two[0].samples["sample"])

    assert len(boards([two[0], other])) == 2


def test_the_joint_worst_case_of_an_unfinished_run_counts_what_is_undecided(two, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path / "c", ["noise", "pgd:steps=6"], eps="0.1", watch=Recorder(stop_after=2 * COUNT))

    (board,) = boards([two[0], load_run(tmp_path / "c")])

    assert worst(board, "0.1").undecided > 0
    assert worst(board, "0.1").low < worst(boards([two[0]])[0], "0.1").low


def test_the_joint_interval_ended_below_the_images_without_a_verdict(tmp_path):
    runs = [run_of(tmp_path / name, attack) for name, attack in (("a", "fgsm"), ("b", "noise:queries=3"))]
    image = int(runs[0].samples["sample"].iloc[0])
    for run in runs:
        store = Store(run.folder)
        store.write([FailedRecord("m", image, int(data(COUNT)[1][image]), 3, "SIGKILL")])
        store.close()
    (board,) = boards([load_run(run.folder) for run in runs])
    cell = worst(board, "0.1")

    assert cell.errors == 1
    assert cell.high == proportion(cell.correct + 1, COUNT).high


def test_a_joint_worst_case_of_runs_that_stopped_early_had_an_interval_of_wilson(tmp_path):
    runs = [run_of(tmp_path / str(seed), "fgsm", seed=seed, eps="0.1", precision=0.14) for seed in (0, 1)]
    (board,) = boards(runs)
    cell = worst(board, "0.1")

    assert (cell.low, cell.high) == sequence(cell.correct, cell.n, COUNT)[1:3]
    assert cell.method == "confidence-sequence"


def test_a_joint_worst_case_had_the_single_draws_of_the_first_run(tmp_path):
    """Noise left 94 % of them right, APGD half, and 94 % was said of both attacks together."""
    noisy = Noisy(linear(), spread=0.2)
    runs = [run_of(tmp_path / name, name, model=noisy, eps="0.1") for name in ("noise:queries=3", "pgd:steps=6")]
    (board,) = boards(runs)

    assert worst(board, "0.1").one_draw_percent == ""


def test_a_joint_median_distance_was_that_of_the_first_run(tmp_path):
    usual = {"norm": "L2", "eps": "minimum"}
    runs = [run_of(tmp_path / name[:4], name, **usual) for name in ("ddn:steps=2", "deepfool")]
    (board,) = boards(runs)
    both = pd.concat([run.samples for run in runs])
    both = both[both.verdict != "clean-wrong"]
    nearest = both.l2.where(both.verdict == "broken", math.inf).groupby(both["sample"]).min()
    cell = worst(board, "minimum")

    assert (cell.distance, cell.distance_low, cell.distance_high) == median(nearest.tolist())
    assert cell.distance < max(run.results["median_distance"].max() for run in runs)


def test_classes_had_more_correct_images_than_the_joint_worst_case(tmp_path):
    """What one run broke at a smaller radius stood as correct among the classes of the other run's radius."""
    runs = [run_of(tmp_path / "a", "pgd:steps=6", eps="0.05"), run_of(tmp_path / "b", "noise:queries=3", eps="0.1")]
    (board,) = boards(runs)
    last = [row.worst[-1] for row in class_rows(board, "m")]
    (taken,) = confusion_tables(board).tables

    assert sum(share.k for share in last if share) == worst(board, "0.1").correct
    assert sum(row[place].images for place, row in enumerate(taken.rows)) == worst(board, "0.1").correct
