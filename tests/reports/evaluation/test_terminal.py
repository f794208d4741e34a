import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from robustkit.reports import print_table

from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows


def printed(run: Run, width: int | None = None, terminal: bool = False) -> str:
    file = io.StringIO()
    print_table(run, Console(file=file, width=width, force_terminal=terminal, color_system=None, _environ={}))
    return file.getvalue()


@pytest.fixture(scope="module")
def single(make_run: Callable[..., Run]) -> Run:
    return make_run(n=504, models=("resnet18",), threats=(("Linf", 0.1, "0.1"),))


def test_a_row_says_accuracy_interval_counts_and_passes(single: Run) -> None:
    row = single.results[single.results["attack"] == "pgd"].iloc[0]

    line = next(line for line in printed(single).splitlines() if line.split()[:1] == ["pgd"])

    assert f"{100 * row['accuracy']:.1f} %" in line
    assert f"{100 * row['ci_low']:.1f}-{100 * row['ci_high']:.1f} %" in line
    assert f"{row['correct']}/504" in line
    assert f"{row['broken']} of {row['attacked']}" in line
    assert line.rstrip().endswith("41.0+40.0")


def test_the_title_names_model_data_count_and_threat(single: Run) -> None:
    assert printed(single).splitlines()[0].strip() == "resnet18 · digits test · n=504 · Linf 0.1"


def test_members_stand_below_their_ensemble_without_an_accuracy(single: Run) -> None:
    lines = [line for line in printed(single).splitlines() if " of " in line]

    names = [line.split()[0] for line in lines]
    members = lines[names.index("standard") + 1 : names.index("standard") + 4]
    assert [line.split()[0] for line in members] == ["apgd-ce", "apgd-t", "square"]
    assert not any("%" in line for line in members)


def test_the_reader_is_told_what_the_numbers_cannot_say(single: Run) -> None:
    text = " ".join(printed(single).split())

    assert "upper bound on robust accuracy under these attacks" in text
    assert re.search(r"Resolution at [\d.]+ % and n=504 \(power 80 %, level 5 %\):", text)
    assert "to be told apart on 504 other images" in text
    assert all(warning in text for warning in single.manifest["warnings"])


def test_two_equal_differences_are_one_number(make_run: Callable[..., Run]) -> None:
    text = " ".join(printed(make_run(n=8, models=("m",), threats=(("Linf", 0.1, "0.1"),))).split())

    assert "another model must differ by 80.1 points to be told apart, on other or on these same images." in text


def test_the_resolution_of_several_rows_is_not_the_most_flattering_one(make_run: Callable[..., Run]) -> None:
    run = make_run(n=504, models=("weak", "strong"), threats=(("Linf", 0.05, "0.05"), ("Linf", 0.2, "0.2")))
    counts = {("weak", "0.05"): 40, ("weak", "0.2"): 3, ("strong", "0.05"): 490, ("strong", "0.2"): 250}
    worst = run.results["role"] == "worst-case"
    correct = [counts.get(key, 0) for key in zip(run.results["model"], run.results["eps_text"], strict=True)]
    results = run.results.assign(correct=run.results["correct"].mask(worst, correct))
    text = " ".join(printed(replace(run, results=results)).split())

    # 1.96 and 0.84 standard errors of the difference of two shares near one half, sqrt(0.5 / 504).
    assert "Resolution at 49.6 % (strong, Linf 0.2, which needs the largest difference) and n=504" in text
    assert "must differ by 8.8 points to be told apart on 504 other images" in text


def test_without_a_worst_case_neither_it_nor_a_resolution_is_explained(make_run: Callable[..., Run]) -> None:
    run = make_run(n=504, models=("m",), threats=(("Linf", 0.1, "0.1"),))
    part = replace(run, results=run.results[run.results["role"] != "worst-case"].reset_index(drop=True))

    assert all(words in printed(run) for words in ("worst-case:", "Resolution"))
    assert not any(words in printed(part) for words in ("worst-case:", "Resolution"))


def test_a_column_is_in_all_tables_of_a_printout_or_in_none(make_run: Callable[..., Run]) -> None:
    run = make_run(n=504, models=("m",), threats=(("Linf", 0.05, "0.05"), ("Linf", 0.1, "0.1")))
    dear = run.results["eps_text"].eq("0.1") & run.results["attack"].eq("pgd")
    run = replace(run, results=run.results.assign(forwards=run.results["forwards"].mask(dear, 10**12)))
    texts = [printed(run, width, terminal=True) for width in range(60, 100, 3)]
    heads = [len(re.findall(r"passes/image *\n", text)) for text in texts]

    assert set(heads) == {0, 2}
    assert heads == [2 * text.count("passes/image: forwards") for text in texts]


def test_nothing_left_prints_a_one_sided_interval(make_run: Callable[..., Run]) -> None:
    run = make_run(n=504, models=("m",), threats=(("Linf", 0.1, "0.1"),), hardness=0.001)

    assert "(<= 0.73 %)" in printed(run)


def test_a_pipe_gets_ascii_numbers_no_colour_and_whole_rows(run: Run) -> None:
    text = printed(run)

    assert "\x1b" not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_keeps_accuracy_and_interval(width: int, single: Run) -> None:
    text = printed(single, width, terminal=True)

    assert max(map(len, text.splitlines())) <= width
    assert "95 % interval" in text
    assert "…" not in text


def test_a_name_is_text_and_no_markup(single: Run) -> None:
    results = single.results.assign(model="[bold]m[/bold]\x1b[2J")

    rows = SampleRows.of_frame(single.samples.assign(model="[bold]m[/bold]\x1b[2J"))
    text = printed(replace(single, results=results, sample_rows=rows))

    assert "[bold]m[/bold]" in text
    assert "\x1b" not in text


def test_the_console_keeps_its_width(single: Run) -> None:
    console = Console(file=io.StringIO(), _environ={})
    before = console.width

    print_table(single, console)

    assert console.width == before


def test_an_unfinished_run_says_so(make_run: Callable[..., Run]) -> None:
    assert "Unfinished: 20 of 90" in printed(make_run(finished=None, decided=20))
