"""Tables in Markdown and LaTeX: the numbers of the run, and names that change neither language."""

import re
import string

import pytest
from robustkit.reports import write_form
from robustkit.reports.evaluation.plain_tables import latex, markdown
from robustkit.reports.evaluation.shown import shown_table

from robustkit import UserError, evaluate
from tests.networks import Constant, switched_off
from tests.small import cnn, data, linear

EVIL = "a|b `c` $d$ \\input{e} <f> *g* _h_ [i](j) %k &l #m ~n ^o"


@pytest.fixture(scope="module")
def run():
    return evaluate([linear(), cnn()], names=[EVIL, "plain"], dataset=data(20), attacks="fgsm", eps=["0.05", "0.1"])


def cells(line: str, mark: str) -> list[str]:
    return [cell.strip() for cell in re.split(rf"(?<!\\){re.escape(mark)}", line.removesuffix(r"\\"))]


def test_markdown_has_a_row_for_each_model_and_the_accuracies_of_the_run(run):
    lines = [line for line in markdown([run]).splitlines() if line.startswith("|")]
    worst = run.results.query("model == 'plain' and role == 'worst-case'")

    assert [len(cells(line, "|")) for line in lines] == [6] * 4  # also that of the evil name
    assert cells(lines[0], "|")[1:-1] == ["model", "clean", "Linf 0.05", "Linf 0.1"]
    for cell, accuracy in zip(cells(lines[3], "|")[3:-1], worst["accuracy"], strict=True):
        assert cell.startswith(f"{100 * accuracy:.1f} %")


def test_markdown_of_a_hostile_name_has_no_live_mark(run):
    line = next(line for line in markdown([run]).splitlines() if line.startswith("| a"))
    name = line.split(" | ")[0].removeprefix("| ")
    left = re.sub(r"\\.", "", name)

    assert not set(left) & set("|`$<>*_[]&#~\\")


def test_latex_of_a_hostile_name_has_no_command_but_those_for_characters(run):
    line = next(line for line in latex([run]).splitlines() if line.strip().startswith("a"))
    name = cells(line, "&")[0]
    left = re.sub(r"\\text[a-z]+\{\}|\\[&%$#_{}]|\{[\[*]\}", "", name)

    assert len(cells(line, "&")) == 4
    assert set(left) <= set(string.ascii_letters + " ]()")


def test_latex_with_quotation_marks_needs_no_other_font_encoding():
    run = evaluate(linear(), names=['make(kind="a")'], dataset=data(4), attacks="fgsm", eps="0.1")

    assert r"make(kind=\symbol{34}a\symbol{34})" in latex([run])  # OT1, the usual one, has no \textquotedbl


def test_latex_is_a_table_with_balanced_groups(run):
    text = latex([run])
    opened = re.findall(r"\\begin\{(\w+)\}", text)

    assert opened == ["table", "tabular"]
    assert sorted(re.findall(r"\\end\{(\w+)\}", text)) == sorted(opened)
    assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))


def test_a_table_for_a_paper_hid_that_its_numbers_are_not_reliable():
    run = evaluate(Constant(3), names=["a"], dataset=data(20), attacks="fgsm", eps="0.05")

    for text in (markdown([run]), latex([run]), shown_table(run, "markdown"), shown_table(run, "latex")):
        assert "Not reliable: a (clean accuracy is not above chance)." in text


def test_a_table_for_a_paper_hid_that_rejected_images_count_as_robust():
    model = switched_off(linear(), 9)
    run = evaluate(model, dataset=data(10), attacks="fgsm", eps="0.05", rejects=True)

    assert "rejected only under attack counts as robust" in markdown([run])


def test_a_caption_says_which_model_was_attacked_by_what():
    """It named all attacks of all runs, as if each had been tried on every model."""
    runs = [
        evaluate(model, names=[name], dataset=data(10), attacks=attack, eps="0.05")
        for model, name, attack in ((linear(), "a", "fgsm"), (cnn(), "b", "pgd:steps=2"))
    ]

    assert "the worst case under fgsm (a); pgd:steps=2 (b), an" in markdown(runs)
    assert "the worst case under fgsm, an" in markdown(runs[:1])


def test_a_median_distance_has_its_own_interval_and_a_column_of_the_headline():
    run = evaluate(linear(), dataset=data(8), attacks="fab:steps=2", norm="L2", eps="minimum")
    row = run.results.query("role == 'worst-case'").iloc[0]
    bounds = f"{row.distance_low:.3g}\N{EN DASH}{row.distance_high:.3g}"
    shown = next(line for line in shown_table(run, "markdown").splitlines() if "worst-case | worst-case" in line)

    assert "| L2 distance |\n| --- | ---: | ---: |\n" in markdown([run])
    assert f"| {row.median_distance:.3g} ({bounds}) |" in markdown([run])
    assert f"| median {row.median_distance:.3g} | {bounds} |" in shown


@pytest.mark.parametrize("name", ["report.docx", "report", "report.csv"])
def test_a_name_that_says_no_form_is_refused_in_one_line(name, run, tmp_path):
    with pytest.raises(UserError, match=r"^.*end its name in \.html, .*\.json, or give --format\.$"):
        write_form([run], tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["paper.tex", "README.md"])
def test_what_a_person_wrote_is_not_replaced_and_an_older_table_is(name, run, tmp_path):
    (tmp_path / name).write_text("my own words")
    with pytest.raises(UserError, match="not replaced"):
        write_form([run], tmp_path / name)
    assert (tmp_path / name).read_text() == "my own words"

    (tmp_path / name).unlink()
    write_form([run], tmp_path / name)
    first = (tmp_path / name).read_bytes()
    write_form([run], tmp_path / name)

    assert (tmp_path / name).read_bytes() == first
