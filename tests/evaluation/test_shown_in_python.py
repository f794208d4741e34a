"""Results show themselves in a line and in a small table, whatever they hold, and nothing in them is markup."""

import pytest

import robustkit
from robustkit import Classifier, UserError, evaluate
from robustkit.data import load_dataset
from robustkit.diagnosis.diagnosis import Diagnosis
from tests.small import data, linear


@pytest.fixture(scope="module")
def run():
    settings = {
        "dataset": data(40),
        "attacks": "fgsm",
        "norm": ["Linf", "L2"],
        "eps": ["Linf:0.05", "Linf:0.1", "L2:1"],
    }
    return evaluate([linear(), linear()], names=["$a_b$", "<b>"], **settings)


def test_what_was_attacked_is_a_frame_with_a_row_for_each_image():
    attacked = robustkit.attack(linear(), *data(20), "fgsm", eps=0.1)
    frame = attacked.to_frame()

    assert frame["verdict"].value_counts().to_dict() == {
        "broken": int(attacked.success.sum()),
        "robust": round(20 * attacked.robust_accuracy),
        "clean-wrong": 20 - int(attacked.clean_correct.sum()),
    }
    assert frame["forwards"].sum() == attacked.forwards.sum()


def test_large_things_are_one_short_line():
    shown = [
        robustkit.attack(linear(), *data(20), "fgsm", eps=0.1), Classifier(linear()), load_dataset("digits"),
        robustkit.diagnose(linear(), *data(20), eps="0.1"),
    ]  # fmt: skip

    assert isinstance(shown[-1], Diagnosis)
    for each in shown:
        assert "\n" not in repr(each)
        assert len(repr(each)) < 400
        assert repr(each).startswith(f"<{type(each).__name__}: ")


def test_names_are_no_markup_in_a_notebook():
    assert '<td style="text-align:left">&lt;script&gt;</td>' in Classifier(linear(), name="<script>")._repr_html_()


def test_a_plot_has_the_accuracies_of_the_run(run):
    charts = run.plot().axes
    worst = run.results.query("model == '<b>' and role == 'worst-case'")["accuracy"].tolist()
    lines = [line for chart in charts for line in chart.get_lines() if line.get_marker() == "s"]

    assert [chart.get_xlabel() for chart in charts] == ["radius (Linf)", "radius (L2)"]
    assert [y for line in lines for y in line.get_ydata()[1:]] == pytest.approx([100 * each for each in worst])


def test_a_name_is_no_formula_in_a_plot(run, tmp_path):
    run.plot().savefig(tmp_path / "plot.svg")

    assert [text.get_text() for text in run.plot().legends[0].get_texts()] == ["$a_b$", "<b>"]


def test_the_ending_of_a_file_chooses_the_report(run, tmp_path):
    for name, start in (("x.html", "<!doctype html>"), ("x.md", "<!--"), ("x.tex", "%")):
        run.save_report(tmp_path / name)

        assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(start)
    with pytest.raises(UserError, match="must end in"):
        run.save_report(tmp_path / "x.pdf")
