"""`robustkit finetune`: files, what they say, and that they lead back."""

import pandas as pd
import pytest

from tests.cli.test_bad_input import refused

TUNE = (
    "finetune", "-q", "-m", "net.py:factory", "--eps", "0.1", "--preset", "fast", "-a", "fgsm",
    "--set", "epochs=2", "--set", "select=pgd:steps=2", "--set", "prior=none", "--set", "lr=0.01", "--out", "tuned",
)  # fmt: skip


@pytest.fixture
def tuned(robustkit, place):
    said = robustkit(*TUNE)
    assert said.status == 0, said.err
    return said


def test_a_tuning_leaves_its_model_history_and_report(tuned, place):
    names = {file.name for file in (place / "tuned").iterdir()}

    files = {"model.safetensors", "history.csv", "report.html", "results.csv", "samples.csv", "run.sqlite"}
    assert names == files | {"training.safetensors"}
    assert pd.read_csv(place / "tuned" / "history.csv").epoch.tolist() == [1, 2]


def test_the_report_has_the_model_before_and_after(tuned, place):
    models = pd.read_csv(place / "tuned" / "results.csv").model.unique().tolist()

    assert models == ["net.factory", "net.factory-tuned"]
    assert "Validation images, 2 epochs" in (place / "tuned" / "report.html").read_text(encoding="utf-8")


def test_the_tuned_model_is_evaluated_by_its_file_alone(tuned, robustkit, place):
    said = robustkit("evaluate", "-q", "-m", "tuned/model.safetensors", "-a", "fgsm", "--eps", "0.1", "--out", "again")
    again, first = (pd.read_csv(place / name / "results.csv").set_index("model") for name in ("again", "tuned"))

    assert said.status == 0
    assert again.accuracy.tolist() == first.loc["net.factory-tuned"].accuracy.tolist()


def test_the_same_command_again_adds_nothing(tuned, robustkit, place):
    before = {file.name: file.read_bytes() for file in (place / "tuned").iterdir() if file.suffix != ".sqlite"}
    robustkit(*TUNE)

    assert before == {file.name: file.read_bytes() for file in (place / "tuned").iterdir() if file.suffix != ".sqlite"}


def test_an_explanation_trains_nothing(robustkit, place):
    said = robustkit(*TUNE, "--explain")

    assert "units of a forward pass" in said.out
    assert not (place / "tuned").exists()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--preset", "saef"), "safe"),
        (("--set", "epoch=3"), "epochs"),
        (("--set", "epochs"), "epochs"),
        (("--set", "lr=-1"), "lr"),
        (("--set", "freeze=*"), "every weight"),
        (("--set", "objective=trade"), "trades"),
        (("--set", "momentum=0"), "momentum"),
        (("--eps", "3"), "3/255"),
        (("-d", "digits.npz"), "train"),
    ],
)
def test_what_cannot_be_trained_is_one_line(robustkit, place, words, match):
    refused(robustkit(*TUNE, *words), match)
    assert not (place / "tuned").exists()
