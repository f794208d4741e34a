"""The page and the table of an ablation: every cell is there, trouble is named, and no name becomes markup."""

import io
import math
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console
from robustkit.reports.ablation.page import AblationContext, page, rows, write_ablation
from robustkit.reports.ablation.terminal import print_ablation

from tests.reports.pages import HOSTILE, Page

CONTROL = HOSTILE + "\x1b[31m"
NAN = math.nan


def cell(
    name: str, changes: int, worst: float, change: tuple[float, float, float], **more: object
) -> dict[str, object]:
    return {
        "cell": name, "changes": changes, "freeze": "none", "status": "finished", "seeds": 2, "planned": 3, "n": 504,
        "clean": 0.952, "clean_low": 0.93, "clean_high": 0.97, "ce": worst + 0.02, "worst": worst,
        "worst_low": worst - 0.03, "worst_high": worst + 0.03, "worst_least": worst, "worst_most": worst,
        "clean_change": 0.0, "clean_change_low": -0.01, "clean_change_high": 0.01,
        "worst_change": change[0], "worst_change_low": change[1], "worst_change_high": change[2], "gap": 0.02,
        "masked": False, "best_epoch": "9 10", "learning_share": 1.0, "seconds_per_epoch": 1.5, "outer_mib": 9.04,
        "attack_mib": 9.0, **more,
    }  # fmt: skip


CELLS = pd.DataFrame([
    cell("baseline", 0, 0.397, (NAN, NAN, NAN)),
    cell("freeze=prefix:layer1", 1, 0.252, (-0.145, -0.18, -0.11), learning_share=0.5),
    cell("nesterov=false", 1, 0.402, (0.005, -0.01, 0.02), ce=0.52, gap=0.118, masked=True),
    cell("bn=frozen", 1, 0.004, (-0.393, -0.43, -0.36), status="collapsed"),
    cell("lr=10", 1, NAN, (NAN, NAN, NAN), status="diverged", clean=NAN, gap=NAN, best_epoch=""),
    cell("bn=frozen, nesterov=false", 2, 0.42, (0.023, 0.005, 0.04), status="1 finished, 1 collapsed"),
])  # fmt: skip
RUNS = pd.DataFrame([
    {"cell": name, "seed": seed, "status": "finished", "clean": 0.95, "ce": 0.4, "worst": 0.39, "best_epoch": 9,
     "seconds_per_epoch": 1.5, "note": "A note."}
    for name in CELLS.cell for seed in (0, 1)
])  # fmt: skip
ABOUT = AblationContext(
    "resnet18", "digits test", "Linf 0.2", 504, "pgd:steps=20", 3, "full", ("lr=10, seed 2",), {"epochs": 10},
    "robustkit ablate -m resnet18",
)  # fmt: skip


def words(text: str) -> str:
    return Page(text).words(between="")


def printed(frame: pd.DataFrame, about: AblationContext, width: int) -> str:
    out = io.StringIO()
    print_ablation(frame, about, Console(file=out, width=width, force_terminal=True, color_system=None))
    return out.getvalue()


def test_every_cell_is_on_the_page_whatever_became_of_it():
    text = words(page(CELLS, RUNS, ABOUT))

    for name in CELLS.cell:
        assert name in text
    assert "39.7 %" in text
    assert "\N{MINUS SIGN}14.5" in text
    assert "\N{MINUS SIGN}18.0 to \N{MINUS SIGN}11.0" in text
    for trouble in ("collapsed", "diverged", "1 finished, 1 collapsed"):
        assert trouble in text


def test_the_best_is_chosen_among_cells_that_trained_well():
    text = words(page(CELLS, RUNS, ABOUT))

    best = text[text.index("Highest among the changes") :][:80]
    assert "40.2 %" in best
    assert "nesterov=false" in best
    assert "3 of 4" in text


def test_one_seed_is_said_to_be_one_seed():
    alone = replace(ABOUT, seeds=1)

    assert "another seed" in printed(CELLS, alone, 100)
    assert "another seed" in words(page(CELLS, RUNS, alone))
    assert "another seed" not in printed(CELLS, ABOUT, 100)


def test_what_was_not_run_is_named():
    text = words(page(CELLS, RUNS, ABOUT))

    assert "lr=10, seed 2" in text
    assert "12 of 13 trainings were run" in text


def test_a_page_loads_nothing_and_runs_nothing_whatever_the_names():
    frame, runs = CELLS.copy(), RUNS.copy()
    frame["cell"], runs["cell"], runs["note"], runs["status"] = CONTROL, CONTROL, CONTROL, "collapsed"
    frame.loc[1:, "status"] = CONTROL
    about = AblationContext(
        CONTROL, CONTROL, CONTROL, 504, CONTROL, 3, CONTROL, (CONTROL,), {CONTROL: CONTROL}, CONTROL
    )
    hostile = Page(page(frame, runs, about))

    for found in (hostile, Page(page(CELLS, RUNS, ABOUT))):
        found.check_safe()
        assert "img" not in dict(found.tags)
    assert hostile.data()["cells"][0]["cell"] == CONTROL


def test_bars_lie_within_their_axis_and_hold_their_value():
    bars = [row.worst_change.bar for row in rows(CELLS) if row.worst_change.bar]

    assert len(bars) == 4
    for bar in bars:
        assert -1e-9 <= bar.low <= bar.at <= bar.low + bar.width <= 100 + 1e-9
    assert min(bar.low for bar in bars) == pytest.approx(0)


def test_a_change_is_clear_where_its_interval_leaves_out_zero():
    kinds = {row.name: row.worst_change.kind for row in rows(CELLS)}

    assert kinds["freeze=prefix:layer1"] == "worse"
    assert kinds["nesterov=false"] == "unclear"
    assert kinds["bn=frozen, nesterov=false"] == "better"


def test_files_have_the_same_bytes_each_time(tmp_path):
    write_ablation(CELLS, RUNS, tmp_path / "a", ABOUT)
    write_ablation(CELLS.copy(), RUNS.copy(), tmp_path / "b", ABOUT)

    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["ablation-runs.csv", "ablation.csv", "ablation.html"]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)
    assert pd.read_csv(tmp_path / "a" / "ablation.csv").worst_change.tolist()[1] == -0.145


def test_an_ablation_of_one_training_has_a_page():
    frame = CELLS.iloc[:1].assign(
        status="diverged", worst=NAN, clean=NAN, ce=NAN, gap=NAN, worst_low=NAN, worst_high=NAN
    )

    text = words(page(frame, RUNS.iloc[:1], ABOUT))

    assert "no changed cell" in text


@pytest.mark.parametrize("width", [160, 100, 60])
def test_the_terminal_shows_every_cell_and_change_at_any_width(width):
    text = printed(CELLS, ABOUT, width)

    assert max(map(len, text.splitlines())) <= width
    for number in ("39.7 %", "-14.5", "+0.5", "-39.3"):
        assert number in text
    for word in ("collapsed", "diverged", "Not run"):
        assert word in text


def test_the_terminal_names_cells_whose_training_left_the_network_as_it_was():
    """A training that went back to its start was printed as the effect of its choice."""
    frame = CELLS.assign(best_epoch=["10 9", "3 0", "10 20", "0", "", "1 2"])
    text = " ".join(printed(frame, ABOUT, 160).split())

    assert "in: freeze=prefix:layer1; bn=frozen. Their figures are those of the network before" in text
    assert "no epoch was better" not in printed(CELLS, ABOUT, 160)


def test_the_terminal_is_ascii_in_the_table():
    table = printed(CELLS, ABOUT, 160).split("Verdicts")[0]

    assert set(table) - set("·─") <= set(map(chr, range(10, 127)))


def test_a_control_character_does_not_reach_the_terminal():
    frame = CELLS.assign(cell=CONTROL)

    assert "\x1b[31m" not in printed(frame, ABOUT, 160)
