from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
from robustkit.reports.evaluation.board import boards, progress
from robustkit.reports.evaluation.result_rows import OrderedRow, in_reading_order, result_rows

from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows

LINF = (("Linf", 0.1, "0.1"),)


def test_runs_over_the_same_images_share_a_board(make_run: Callable[..., Run]) -> None:
    first = make_run(models=("a",), threats=LINF)
    second = make_run(models=("b",), threats=LINF, folder="runs/second")

    (board,) = boards([first, second])

    assert board.models == ["a", "b"]


def test_a_name_used_twice_gets_its_folder(make_run: Callable[..., Run]) -> None:
    runs = [make_run(models=("a",), threats=LINF, folder=f"{folder}/night") for folder in ("x", "y")]
    other = replace(runs[0], folder=Path("day"))

    (board,) = boards([*runs, other])

    assert board.models == ["a (night, run 1)", "a (night, run 2)", "a (day)"]


def test_another_choice_of_images_is_another_board(make_run: Callable[..., Run]) -> None:
    runs = [make_run(n=n, models=("a",), threats=LINF, seed=seed) for n, seed in ((40, 0), (40, 1), (50, 0))]

    assert len(boards(runs)) == 3


def test_radii_rise_whatever_their_order_in_the_run(make_run: Callable[..., Run]) -> None:
    run = make_run(n=20, threats=(("L2", 1.0, "1"), ("Linf", 0.2, "0.2"), ("L2", 0.5, "1/2")))

    (board,) = boards([run])

    assert [str(threat) for threat in board.threats] == ["L2 1/2", "L2 1", "Linf 0.2"]


def names(rows: list[OrderedRow]) -> list[tuple[str, str | None]]:
    return [(row.name, row.ensemble) for row in rows]


def frame(run: Run, *rows: tuple[str, str]) -> pd.DataFrame:
    one = run.results.iloc[1].to_dict()
    return pd.DataFrame([one | {"attack": attack, "role": role} for attack, role in rows])


def test_an_attack_that_had_nothing_to_attack_spent_its_passes_on_no_image(run: Run) -> None:
    one = run.results.iloc[1].to_dict() | {"role": "attack", "attacked": 0, "forwards": 0, "backwards": 0}
    (row,) = result_rows(pd.DataFrame([one]))

    assert row.images == 0


def test_members_find_their_ensemble_before_and_behind_them(run: Run) -> None:
    before = [("a", "member"), ("b", "member"), ("one", "ensemble"), ("c", "member"), ("two", "ensemble")]
    behind = [("one", "ensemble"), ("a", "member"), ("b", "member"), ("two", "ensemble"), ("c", "member")]
    expected = [("one", None), ("a", "one"), ("b", "one"), ("two", None), ("c", "two")]

    assert names(in_reading_order(result_rows(frame(run, *before)))) == expected
    assert names(in_reading_order(result_rows(frame(run, *behind)))) == expected


def test_a_member_named_after_its_ensemble_needs_no_neighbour(run: Run) -> None:
    rows = [("one", "ensemble"), ("two", "ensemble"), ("one/a", "member"), ("two/a", "member")]

    assert names(in_reading_order(result_rows(frame(run, *rows)))) == [
        ("one", None),
        ("a", "one"),
        ("two", None),
        ("a", "two"),
    ]


def test_a_run_is_as_far_as_its_slowest_attack(make_run: Callable[..., Run]) -> None:
    run = make_run(finished=None, n=40, threats=LINF, models=("a",))
    pending = (run.samples["attack"] == "pgd") & (run.samples["sample"] > run.samples["sample"].median())
    behind = replace(run, sample_rows=SampleRows.of_frame(run.samples[~pending]))

    state = progress(behind)

    assert state
    assert state.planned == 40
    assert state.done == (behind.samples["attack"] == "pgd").sum()


def test_a_finished_run_has_no_progress(run: Run) -> None:
    assert progress(run) is None
